#include "base/duration.h"

#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "fmt/format.h"

namespace emberkv {

Result<std::chrono::microseconds> ParseDuration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kSecondsOf[] = {
      {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  for (const auto& [name, seconds] : kSecondsOf) {
    const double micros = number * seconds * 1e6;
    if (error != std::errc() || unit != name || !(micros >= 1) || micros > 1e16) continue;
    return std::chrono::microseconds(static_cast<int64_t>(micros));
  }
  return InvalidArgument(fmt::format(
      "duration is '{}'; allowed: a number with ms, s, m, h or d, such as 5m or 72h", text));
}

}  // namespace emberkv
