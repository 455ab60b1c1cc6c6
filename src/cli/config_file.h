// A command's options from a JSON file: {"port": 8080, "store-size": "64G"}, names as on the command line.
//
// Called by the command's one thread, from its callback.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"

namespace emberkv {

// Gives every option that the command line left out its value from the file. Names that the command does not
// have are refused, and values that the option refuses.
Status ApplyConfigFile(const std::string& path, CLI::App* command);

}  // namespace emberkv
