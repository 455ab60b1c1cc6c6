// `emberkv plan`: what a config.json means for the cache. The numbers are made in cli/plan.h.
#pragma once

#include <CLI/CLI.hpp>

namespace emberkv {

// Adds the subcommand; when it is chosen, app.parse() runs it and sets *exit_code (0, or 1 with a
// message on stderr). `exit_code` must outlive the parse.
void AddPlanCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
