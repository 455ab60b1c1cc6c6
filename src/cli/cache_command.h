// `emberkv cache`: looks into a store of global KV and tends it.
#pragma once

#include <CLI/CLI.hpp>

namespace emberkv {

// Adds the subcommand; when it is chosen, app.parse() runs it and sets *exit_code (0; 1 with a
// message on stderr, and when `verify` finds what is corrupt). `exit_code` must outlive the parse.
void AddCacheCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
