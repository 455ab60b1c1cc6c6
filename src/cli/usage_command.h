// `emberkv usage`: what the requests of a ledger add up to.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "ledger/usage.h"

namespace emberkv {

struct UsageOptions {
  std::vector<std::string> ledgers;  // files; those rotated out of them are read too
  UsageKey key = UsageKey::kNone;
  bool json = false;
};

// A table for people or, with `json`, one object. Any thread.
Result<std::string> UsageText(const UsageOptions& options);

// Adds the subcommand; when it is chosen, app.parse() runs it and sets *exit_code (0, or 1 with a
// message on stderr). `exit_code` must outlive the parse.
void AddUsageCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
