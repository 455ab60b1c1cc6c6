#include "ledger/utc_time.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

namespace emberkv {
namespace {

namespace chrono = std::chrono;

constexpr std::string_view kPattern = "dddd-dd-ddTdd:dd:dd.ddddddZ";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

Status Refuse(std::string_view text) {
  return InvalidArgument(
      fmt::format("time is '{}'; allowed: UTC from 1970 to 9999 as in 2026-09-10T01:02:03.000004Z",
                  text.substr(0, kPattern.size() + 1)));
}

}  // namespace

std::string UtcDay(int64_t time_us) {
  const chrono::sys_time<chrono::microseconds> time{chrono::microseconds(time_us)};
  const chrono::year_month_day day{chrono::floor<chrono::days>(time)};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()),
                     static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()));
}

std::string UtcText(int64_t time_us) {
  const int64_t seconds = time_us / 1'000'000;
  return fmt::format("{}T{:02}:{:02}:{:02}.{:06}Z", UtcDay(time_us), seconds / 3600 % 24,
                     seconds / 60 % 60, seconds % 60, time_us % 1'000'000);
}

Result<int64_t> ParseUtcText(std::string_view text) {
  if (text.size() != kPattern.size()) return Refuse(text);
  std::array<int, 7> parts{};  // year, month, day, hour, minute, second, microsecond
  size_t part = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (kPattern[i] != 'd') {
      if (text[i] != kPattern[i]) return Refuse(text);
      ++part;
      continue;
    }
    if (!IsDigit(text[i])) return Refuse(text);
    parts[part] = parts[part] * 10 + (text[i] - '0');
  }
  const auto [year, month, day, hour, minute, second, micros] = parts;
  const chrono::year_month_day date{chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || year < 1970 || hour > 23 || minute > 59 || second > 59) return Refuse(text);
  const chrono::microseconds time = chrono::sys_days(date).time_since_epoch() +
                                    chrono::hours(hour) + chrono::minutes(minute) +
                                    chrono::seconds(second) + chrono::microseconds(micros);
  return time.count();
}

}  // namespace emberkv
