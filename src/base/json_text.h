// A JSON value as a message shows it: short, whatever it is.
//
// A pure function; any thread.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace emberkv {

// `Value`: nlohmann::json or nlohmann::ordered_json.
template <class Value>
std::string ShowJson(const Value& value) {
  constexpr size_t kMaxShown = 60;
  if (value.is_object()) return fmt::format("an object of {} fields", value.size());
  if (value.is_array()) return fmt::format("a list of {} values", value.size());
  if (value.is_string() && value.template get_ref<const std::string&>().size() > kMaxShown) {
    return fmt::format("a text of {} bytes", value.template get_ref<const std::string&>().size());
  }
  return value.dump(-1, ' ', false, Value::error_handler_t::replace);
}

}  // namespace emberkv
