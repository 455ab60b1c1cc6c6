#include "cli/quantity.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "fmt/format.h"

namespace emberkv {
namespace {

constexpr std::string_view kPrefixes = "KMGT";

// `suffix` in upper case: "", "K", "KIB", "KB", ... Returns 0 for what is none of these.
double UnitOf(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 1;
  const size_t power = kPrefixes.find(suffix[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = suffix.substr(1);
  if (rest.empty() || rest == "IB") return std::pow(1024.0, double(power) + 1);
  if (rest == "B") return std::pow(1000.0, double(power) + 1);
  return 0;
}

// -1 for text that is not a quantity from 0 to 2^62.
double ParseQuantity(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return -1;
  std::string suffix(rest, end);
  for (char& c : suffix) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const double unit = UnitOf(suffix);
  const double value = number * unit;
  if (unit == 0 || !(value >= 0) || value > std::ldexp(1.0, 62)) return -1;
  return value;
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  const double value = ParseQuantity(text);
  if (value < 1) {
    return InvalidArgument(fmt::format(
        "size is '{}'; allowed: a number with K, M, G or T, such as 64G or 1.5T", text));
  }
  return static_cast<uint64_t>(value);
}

Result<int64_t> ParseTokens(std::string_view text) {
  const double value = ParseQuantity(text);
  if (value < 1 || value != std::floor(value)) {
    return InvalidArgument(fmt::format(
        "token count is '{}'; allowed: a whole number, or one with K or M, such as 32K or 1M",
        text));
  }
  return static_cast<int64_t>(value);
}

std::string Grouped(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string GroupedDecimal(double value) {
  const auto hundredths = static_cast<uint64_t>(std::llround(value * 100));
  std::string text = Grouped(hundredths / 100);
  if (hundredths % 100 == 0) return text;
  text += fmt::format(".{:02}", hundredths % 100);
  if (text.back() == '0') text.pop_back();
  return text;
}

std::string BinarySize(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t power = 0;
  for (; value >= 1024 && power + 1 < kPrefixes.size(); ++power) value /= 1024;
  return fmt::format("{:.2f} {}iB", value, kPrefixes[power]);
}

std::string Duration(double seconds) {
  auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  whole = (whole + 59) / 60;
  return fmt::format("{} h {} min", whole / 60, whole % 60);
}

}  // namespace emberkv
