// Lengths of time as people write them.
//
// A pure function: any thread may call it.
#pragma once

#include <chrono>
#include <string_view>

#include "base/status.h"

namespace emberkv {

// "72h", "5m", "1.5d", "30s", "500ms": above zero, up to some hundred years.
Result<std::chrono::microseconds> ParseDuration(std::string_view text);

}  // namespace emberkv
