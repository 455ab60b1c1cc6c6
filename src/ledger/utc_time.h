// Wall time as ledgers write it: UTC with microseconds, fixed width, so that text sorts as time
// does.
//
// Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace emberkv {

inline constexpr int64_t kMaxUtcMicros = 253'402'300'799'999'999;  // the end of the year 9999

// Since 1970-01-01, 0 to kMaxUtcMicros -> "2026-09-10T01:02:03.000004Z".
std::string UtcText(int64_t time_us);

// "2026-09-10"
std::string UtcDay(int64_t time_us);

// What UtcText writes, and nothing else.
Result<int64_t> ParseUtcText(std::string_view text);

}  // namespace emberkv
