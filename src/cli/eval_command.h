// `emberkv eval recall`: how many prompts of a file a model answers exactly.
#pragma once

#include <CLI/CLI.hpp>

namespace emberkv {

// Adds the subcommand; when it is chosen, app.parse() runs it and sets *exit_code (0; 1 with a message
// on stderr, and when too few answers are exact; 130 after Ctrl-C). `exit_code` must outlive the parse.
void AddEvalCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
