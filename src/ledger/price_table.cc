#include "ledger/price_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include "base/mapped_file.h"
#include "ledger/json_fields.h"

namespace emberkv {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 7> kDays = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};
constexpr uint32_t kMondayToFriday = 0b0111110;
constexpr int kMinutesPerDay = 24 * 60;
constexpr uint64_t kMaxTableBytes = 1 << 20;

Status CheckNames(const Json& object, const std::string& prefix,
                  const std::set<std::string>& known) {
  for (const auto& [name, value] : object.items()) {
    if (known.contains(name)) continue;
    return InvalidArgument(fmt::format("{}{} is not known; allowed: {}", prefix,
                                       ShowJson(Json(name)), fmt::join(known, ", ")));
  }
  return Status::Ok();
}

// A micro-dollar per million tokens is a pico-dollar per token.
void ReadPrice(JsonFields& fields, const std::string& name, PicoDollars* price) {
  constexpr const char* kAllowed =
      "dollars per million tokens, a number from 0 to 1000 with at most six decimals";
  const Json* value = fields.Find(name, Need::kRequired, kAllowed);
  if (value == nullptr) return;
  if (!value->is_number()) return fields.Fail(name, *value, kAllowed);
  const double dollars = value->get<double>();
  if (!(dollars >= 0 && dollars <= 1000)) return fields.Fail(name, *value, kAllowed);
  const int64_t micros = std::llround(dollars * 1e6);
  // Both sides are the double nearest to the same decimal, or the number has more decimals.
  if (static_cast<double>(micros) / 1e6 != dollars) return fields.Fail(name, *value, kAllowed);
  *price = micros;
}

Result<TokenPrices> ReadPrices(const Json& table, const std::string& name) {
  JsonFields outer(table);
  const Json* object = outer.Find(name, Need::kRequired, "an object with hit, miss and output");
  EMBERKV_RETURN_IF_ERROR(outer.status());
  if (!object->is_object()) {
    outer.Fail(name, *object, "an object with hit, miss and output");
    return outer.status();
  }
  EMBERKV_RETURN_IF_ERROR(CheckNames(*object, name + ".", {"hit", "miss", "output"}));
  TokenPrices prices;
  JsonFields fields(*object, name + ".");
  ReadPrice(fields, "hit", &prices.hit);
  ReadPrice(fields, "miss", &prices.miss);
  ReadPrice(fields, "output", &prices.output);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  return prices;
}

// "06:30" -> 390; up to "24:00".
void ReadMinute(JsonFields& fields, const std::string& name, int* minute) {
  constexpr const char* kAllowed = "a time of the day (UTC) from \"00:00\" to \"24:00\"";
  const Json* value = fields.Find(name, Need::kRequired, kAllowed);
  if (value == nullptr) return;
  if (!value->is_string()) return fields.Fail(name, *value, kAllowed);
  const auto& text = value->get_ref<const std::string&>();
  const auto digit = [&](size_t i) {
    return text[i] >= '0' && text[i] <= '9' ? text[i] - '0' : 99;
  };
  if (text.size() != 5 || text[2] != ':') return fields.Fail(name, *value, kAllowed);
  const int hours = digit(0) * 10 + digit(1);
  const int minutes = digit(3) * 10 + digit(4);
  if (minutes > 59 || hours * 60 + minutes > kMinutesPerDay) {
    return fields.Fail(name, *value, kAllowed);
  }
  *minute = hours * 60 + minutes;
}

void ReadDays(JsonFields& fields, uint32_t* weekdays) {
  const std::string allowed = fmt::format("a list of {}", fmt::join(kDays, ", "));
  const Json* value = fields.Find("days", Need::kRequired, allowed);
  if (value == nullptr) return;
  if (!value->is_array() || value->empty()) return fields.Fail("days", *value, allowed);
  for (const Json& day : *value) {
    const auto known = std::find_if(kDays.begin(), kDays.end(),
                                    [&](std::string_view name) { return day == name; });
    if (known == kDays.end()) return fields.Fail("days", day, allowed);
    *weekdays |= 1u << (known - kDays.begin());
  }
}

Result<PeakWindow> ReadWindow(const Json& object, const std::string& prefix) {
  if (!object.is_object()) {
    return InvalidArgument(fmt::format("{} is {}; allowed: an object with days, begin and end",
                                       prefix, ShowJson(object)));
  }
  EMBERKV_RETURN_IF_ERROR(CheckNames(object, prefix + ".", {"days", "begin", "end"}));
  PeakWindow window;
  JsonFields fields(object, prefix + ".");
  ReadDays(fields, &window.weekdays);
  ReadMinute(fields, "begin", &window.begin_minute);
  ReadMinute(fields, "end", &window.end_minute);
  if (fields.status().ok() && window.begin_minute >= window.end_minute) {
    fields.Fail("end", object["end"], "a time after begin");
  }
  EMBERKV_RETURN_IF_ERROR(fields.status());
  return window;
}

}  // namespace

bool PriceTable::IsPeak(int64_t time_us) const {
  namespace chrono = std::chrono;
  const auto minutes = chrono::floor<chrono::minutes>(chrono::microseconds(time_us));
  const auto day = chrono::floor<chrono::days>(minutes);
  const auto minute = static_cast<int>((minutes - day).count());
  const unsigned weekday = chrono::weekday(chrono::sys_days(day)).c_encoding();
  return std::any_of(peak_windows.begin(), peak_windows.end(), [&](const PeakWindow& window) {
    return (window.weekdays >> weekday & 1) != 0 && minute >= window.begin_minute &&
           minute < window.end_minute;
  });
}

PriceTable PublishedPrices() {
  return {.name = "deepseek-flash 2026-09-10",
          .off_peak = {.hit = 3'000, .miss = 150'000, .output = 600'000},
          .peak = {.hit = 6'000, .miss = 300'000, .output = 1'200'000},
          .peak_windows = {{kMondayToFriday, 1 * 60, 4 * 60}, {kMondayToFriday, 6 * 60, 10 * 60}}};
}

Result<PriceTable> ParsePriceTable(std::string_view json) {
  EMBERKV_ASSIGN_OR_RETURN(const Json object, ParseJsonObject(json));
  EMBERKV_RETURN_IF_ERROR(CheckNames(object, "", {"name", "off_peak", "peak", "peak_windows"}));
  PriceTable table;
  JsonFields fields(object);
  fields.Read("name", Need::kRequired, &table.name);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  EMBERKV_ASSIGN_OR_RETURN(table.off_peak, ReadPrices(object, "off_peak"));
  if (!object.contains("peak") && !object.contains("peak_windows")) {
    table.peak = table.off_peak;
    return table;
  }
  EMBERKV_ASSIGN_OR_RETURN(table.peak, ReadPrices(object, "peak"));
  const Json* windows = fields.Find("peak_windows", Need::kRequired, "a list of windows");
  EMBERKV_RETURN_IF_ERROR(fields.status());
  if (!windows->is_array()) fields.Fail("peak_windows", *windows, "a list of windows");
  EMBERKV_RETURN_IF_ERROR(fields.status());
  for (size_t i = 0; i < windows->size(); ++i) {
    EMBERKV_ASSIGN_OR_RETURN(PeakWindow window,
                             ReadWindow((*windows)[i], fmt::format("peak_windows[{}]", i)));
    table.peak_windows.push_back(window);
  }
  return table;
}

Result<PriceTable> LoadPriceTable(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTableBytes));
  Result<PriceTable> table = ParsePriceTable(text);
  if (!table.ok()) return table.status().WithContext(path);
  return table;
}

Cost CostOf(const PriceTable& prices, int64_t time_us, int64_t prompt_tokens, int64_t hit_tokens,
            int64_t completion_tokens) {
  assert(0 <= hit_tokens && hit_tokens <= prompt_tokens && prompt_tokens <= kMaxRequestTokens);
  assert(0 <= completion_tokens && completion_tokens <= kMaxRequestTokens);
  const TokenPrices& price = prices.At(time_us);
  const PicoDollars output = completion_tokens * price.output;
  return {.with_cache = hit_tokens * price.hit + (prompt_tokens - hit_tokens) * price.miss + output,
          .without_cache = prompt_tokens * price.miss + output};
}

Status AddMoney(PicoDollars value, PicoDollars* sum) {
  PicoDollars added = 0;
  if (__builtin_add_overflow(*sum, value, &added)) {
    return ResourceExhausted(fmt::format("costs add up to more than {}, the most allowed",
                                         DollarText(std::numeric_limits<PicoDollars>::max())));
  }
  *sum = added;
  return Status::Ok();
}

std::string DollarText(PicoDollars value) {
  const auto size = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const uint64_t micros = (size + 500'000) / 1'000'000;
  return fmt::format("{}${}.{:06}", value < 0 && micros > 0 ? "-" : "", micros / 1'000'000,
                     micros % 1'000'000);
}

}  // namespace emberkv
