// Sizes and counts as people write and read them.
//
// Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace emberkv {

// "64G", "1.5T", "512MiB", "4096": powers of 1024, except that KB, MB, GB and TB are powers of
// 1000.
Result<uint64_t> ParseBytes(std::string_view text);

// "4K", "1M", "32768": powers of 1024, as context lengths are given. At least 1.
Result<int64_t> ParseTokens(std::string_view text);

// 1234567 -> "1,234,567"
std::string Grouped(uint64_t value);

// Grouped, with up to two decimals where the value is not whole: 890 -> "890", 3514.25 ->
// "3,514.25".
std::string GroupedDecimal(double value);

// "890.00 MiB"; below 1 KiB "512 B".
std::string BinarySize(uint64_t bytes);

// "8 s", "2 min 5 s", "71 h 59 min"; what is left of the smallest unit counts as one.
std::string Duration(double seconds);

}  // namespace emberkv
