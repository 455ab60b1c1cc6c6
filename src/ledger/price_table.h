// What tokens cost, and what a request costs with the cache and would cost without it.
//
// Money is a whole number of pico-dollars (10^-12 $): a price per million tokens with up to six
// decimals is a whole number of them per token, so costs and their sums are exact. Plain values and
// pure functions but for LoadPriceTable, which reads a file: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace emberkv {

using PicoDollars = int64_t;

inline constexpr PicoDollars kPicoDollarsPerDollar = 1'000'000'000'000;
// Bounds under which the cost of one request cannot overflow.
inline constexpr int64_t kMaxRequestTokens = 1'000'000'000;   // prompt, and completion as well
inline constexpr PicoDollars kMaxTokenPrice = 1'000'000'000;  // $1000 per million
inline constexpr PicoDollars kMaxRequestCost = 2 * kMaxRequestTokens * kMaxTokenPrice;

struct TokenPrices {  // per token
  PicoDollars hit = 0;
  PicoDollars miss = 0;
  PicoDollars output = 0;

  bool operator==(const TokenPrices&) const = default;
};

// Minutes of the day, UTC, on some days of the week.
struct PeakWindow {
  uint32_t weekdays = 0;  // bit 0: Sunday, ... bit 6: Saturday
  int begin_minute = 0;   // [begin, end)
  int end_minute = 0;

  bool operator==(const PeakWindow&) const = default;
};

struct PriceTable {
  std::string name;
  TokenPrices off_peak;
  TokenPrices peak;
  std::vector<PeakWindow> peak_windows;

  bool IsPeak(int64_t time_us) const;  // of a wall time from 0 on
  const TokenPrices& At(int64_t time_us) const { return IsPeak(time_us) ? peak : off_peak; }
};

// deepseek-flash as published on 2026-09-10; public holidays, which are off-peak, are not known.
PriceTable PublishedPrices();

// The form is described in docs/ledger.md. Fields that are not known are refused: a misspelt one
// would cost money.
Result<PriceTable> ParsePriceTable(std::string_view json);
Result<PriceTable> LoadPriceTable(const std::string& path);

struct Cost {
  PicoDollars with_cache = 0;
  PicoDollars without_cache = 0;  // every prompt token a miss

  bool operator==(const Cost&) const = default;
};

// Of a request that arrived at `time_us`; hit_tokens of the prompt_tokens came from the cache.
// Counts are from 0 to kMaxRequestTokens.
Cost CostOf(const PriceTable& prices, int64_t time_us, int64_t prompt_tokens, int64_t hit_tokens,
            int64_t completion_tokens);

// kResourceExhausted, and *sum as it was, when the sum would overflow ($9.2 million).
Status AddMoney(PicoDollars value, PicoDollars* sum);

// "$12.345678", "-$0.000001": rounded to six decimals, half away from zero.
std::string DollarText(PicoDollars value);

}  // namespace emberkv
