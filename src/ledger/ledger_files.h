// Ledgers as a reader finds them: the file that is written and, beside it, those it was rotated
// into.
//
// Free functions, any thread. The ledger may be written and rotated meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "ledger/ledger_line.h"

namespace emberkv {

struct LedgerReading {
  uint64_t files = 0;
  uint64_t lines = 0;
  uint64_t torn_lines = 0;  // cut off by a crash or a full disk: no complete JSON
};

// Calls `visit` with every line of the ledgers at `paths`, oldest file first; stops at the first
// failure, its own or one of `visit`. A file that is named twice, or by another name, is read once.
// A line that is JSON and no ledger line is kInvalidArgument, and so is a file of torn lines only.
Result<LedgerReading> ReadLedgers(const std::vector<std::string>& paths,
                                  const std::function<Status(const LedgerLine&)>& visit);

}  // namespace emberkv
