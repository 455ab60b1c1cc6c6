// What one request was and what it cost: one line of the ledger (docs/ledger.md).
//
// Plain values and pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace emberkv {

struct LedgerLine {
  int64_t time_us = 0;  // wall time of arrival
  std::string request_id;
  std::string tenant;
  std::string endpoint;  // "/v1/chat/completions"
  std::string model;
  int64_t status = 200;       // HTTP's, and 499 where the client went away
  std::string finish_reason;  // empty where there was no answer

  int64_t prompt_tokens = 0;  // hit + miss
  int64_t hit_tokens = 0;
  int64_t replayed_tokens = 0;  // rows run again to rebuild windows; not billed
  int64_t miss_tokens = 0;      // computed
  int64_t completion_tokens = 0;

  int64_t resident_blocks = 0;  // where the hit was found: in memory
  int64_t store_blocks = 0;     // and in the store
  int64_t bytes_read = 0;       // from the store

  int64_t queue_us = 0;
  int64_t restore_us = 0;
  int64_t ttft_us = 0;
  int64_t total_us = 0;

  int64_t replayed_at = 0;  // provenance of the blocks computed: 0 is canonical, else replayed@H
  std::string miss_reason;  // why the hit ended where it did; empty where all was found

  int64_t cost_pico_usd = 0;
  int64_t cost_without_cache_pico_usd = 0;

  bool operator==(const LedgerLine&) const = default;
};

// One JSON object in the order of the struct, without a newline. Text that is no UTF-8 is repaired.
std::string LedgerJson(const LedgerLine& line);

// Fields that are not known are ignored. Absent ones keep their default, but time, billed tokens
// and costs must be there. kDataLoss: no complete JSON; kInvalidArgument: a field is wrong.
Result<LedgerLine> ParseLedgerLine(std::string_view json);

}  // namespace emberkv
