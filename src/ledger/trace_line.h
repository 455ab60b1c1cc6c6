// A request as a trace knows it: when it came, how long it was, and the ids of its blocks. Equal
// ids mean equal blocks with equal blocks before them. What a server records and `emberkv simulate`
// replays (docs/ledger.md).
//
// Plain values and pure functions: any thread. A TraceReader is owned and used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ledger/line_reader.h"

namespace emberkv {

struct TraceLine {
  int64_t time_us = 0;  // from 0 on, of any beginning; prices take it as UTC
  std::string tenant = {};
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t block_size = 128;           // tokens
  std::vector<uint64_t> blocks = {};  // complete ones of prompt and completion, in order

  bool operator==(const TraceLine&) const = default;
};

// One JSON object without a newline; the time as seconds, block ids as 16 hex digits.
std::string TraceJson(const TraceLine& line);

// Either that or a line of Mooncake's open traces, whose blocks are of 512 tokens and whose last,
// incomplete block is dropped. kDataLoss: no complete JSON; kInvalidArgument: a field is wrong.
Result<TraceLine> ParseTraceLine(std::string_view json);

class TraceReader {
 public:
  static Result<TraceReader> Open(const std::string& path);

  // The next line; false at the end. Lines that were cut off are skipped and counted. All lines
  // have blocks of one size.
  Result<bool> Next(TraceLine* line);

  uint64_t torn_lines() const { return torn_lines_; }
  const LineReader& file() const { return lines_; }
  // `status` with the path and number of the last line in front.
  Status AtLine(const Status& status) const { return lines_.AtLine(status); }

 private:
  explicit TraceReader(LineReader lines) : lines_(std::move(lines)) {}

  LineReader lines_;
  uint64_t torn_lines_ = 0;
  std::optional<int64_t> block_size_;
};

}  // namespace emberkv
