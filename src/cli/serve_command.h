// `emberkv serve`: the service for many clients, and `emberkv key`, which makes them keys.
#pragma once

#include <CLI/CLI.hpp>

namespace emberkv {

// `exit_code` is written when the command runs and must outlive the parse.
void AddServeCommand(CLI::App& app, int* exit_code);
void AddKeyCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
