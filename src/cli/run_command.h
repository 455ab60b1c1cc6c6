// `emberkv run`: the model reads documents and answers prompts in one session.
#pragma once

#include <CLI/CLI.hpp>

namespace emberkv {

// Adds the subcommand; when it is chosen, app.parse() runs it and sets *exit_code (0; 1 with a
// message on stderr; 130 after Ctrl-C). `exit_code` must outlive the parse.
void AddRunCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
