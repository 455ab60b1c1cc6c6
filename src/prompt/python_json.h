// JSON as the prompt format writes it: the text of Python's json.dumps(value, ensure_ascii=False),
// which is what the model was trained on. Keys keep their order.
//
// Reading is bounded, so that a hostile document costs time in proportion to its size and no deep
// stack. Free functions, any thread.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace emberkv {

inline constexpr int kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonFields =
    512;  // of one object: ordered objects are searched linearly

// kInvalidArgument: not JSON. kResourceExhausted: beyond the limits above, or an integer of more
// than 64 bits, which would come out as another number.
Result<nlohmann::ordered_json> ParseJson(std::string_view text);

// ", " and ": " between values; 1e-07, 1e+30, -1.5, 2.0. kResourceExhausted beyond kMaxJsonDepth.
Result<std::string> PythonJson(const nlohmann::ordered_json& value);

// `text` with quotes around it.
std::string PythonJsonString(std::string_view text);

}  // namespace emberkv
