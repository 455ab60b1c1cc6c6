// `emberkv simulate`: what stores of given sizes would have done with a trace of requests.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace emberkv {

struct SimulateOptions {
  std::string trace;
  std::vector<uint64_t> store_bytes;  // one run each
  std::chrono::microseconds retention = std::chrono::hours(72);
  uint64_t memory_bytes = 0;
  std::string model;        // its folder or config.json says how large a page is
  uint64_t page_bytes = 0;  // or this does
  std::string prices;       // a file; the published ones when empty
  bool json = false;
};

// A table for people or, with `json`, one object. `progress` gets a line of text now and then. Any
// thread.
Result<std::string> SimulateText(const SimulateOptions& options,
                                 const std::function<void(const std::string&)>& progress = {});

// Adds the subcommand; when it is chosen, app.parse() runs it and sets *exit_code (0, or 1 with a
// message on stderr). `exit_code` must outlive the parse.
void AddSimulateCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
