// `emberkv inspect`: what a checkpoint holds, after checking all of it against its config.
#pragma once

#include <CLI/CLI.hpp>

namespace emberkv {

// Adds the subcommand; when it is chosen, app.parse() runs it and sets *exit_code (0, or 1 with a
// message on stderr). `exit_code` must outlive the parse.
void AddInspectCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
