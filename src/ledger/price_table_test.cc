#include "ledger/price_table.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "ledger/utc_time.h"

namespace emberkv {
namespace {

int64_t At(const std::string& minute) { return *ParseUtcText(minute + ":00.000000Z"); }

TEST(PriceTable, PublishedPeakIsTwiceOffPeakOnWorkdayMornings) {
  const PriceTable prices = PublishedPrices();
  EXPECT_EQ(prices.off_peak, (TokenPrices{.hit = 3'000, .miss = 150'000, .output = 600'000}));
  EXPECT_EQ(prices.peak, (TokenPrices{.hit = 6'000, .miss = 300'000, .output = 1'200'000}));
  const struct {
    const char* minute;
    bool is_peak;
  } kCases[] = {{"2026-09-10T00:59", false}, {"2026-09-10T01:00", true},  // a Thursday
                {"2026-09-10T03:59", true},  {"2026-09-10T04:00", false},
                {"2026-09-10T05:59", false}, {"2026-09-10T06:00", true},
                {"2026-09-10T09:59", true},  {"2026-09-10T10:00", false},
                {"2026-09-07T02:00", true},  {"2026-09-11T02:00", true},  // Monday, Friday
                {"2026-09-12T02:00", false}, {"2026-09-13T02:00", false}};
  for (const auto& [minute, is_peak] : kCases) {
    EXPECT_EQ(prices.IsPeak(At(minute)), is_peak) << minute;
    EXPECT_EQ(prices.At(At(minute)), is_peak ? prices.peak : prices.off_peak) << minute;
  }
}

TEST(PriceTable, CostsAreExact) {
  const PriceTable prices = PublishedPrices();
  // 896 x 0.003 + 104 x 0.15 + 50 x 0.60 micro-dollars; without the cache 1000 x 0.15 + 50 x 0.60.
  EXPECT_EQ(CostOf(prices, At("2026-09-12T02:00"), 1000, 896, 50), (Cost{48'288'000, 180'000'000}));
  EXPECT_EQ(CostOf(prices, At("2026-09-10T02:00"), 1000, 896, 50), (Cost{96'576'000, 360'000'000}));
  EXPECT_EQ(CostOf(prices, 0, 0, 0, 0), Cost());
  PriceTable dearest = prices;
  dearest.off_peak = {kMaxTokenPrice, kMaxTokenPrice, kMaxTokenPrice};
  EXPECT_EQ(CostOf(dearest, 0, kMaxRequestTokens, 0, kMaxRequestTokens),
            (Cost{kMaxRequestCost, kMaxRequestCost}));
}

TEST(PriceTable, IsReadFromAFile) {
  const auto prices = LoadPriceTable(EMBERKV_TEST_DATA "/ledger/prices.json");
  ASSERT_TRUE(prices.ok()) << prices.status().ToString();
  EXPECT_EQ(prices->name, "in-house");
  EXPECT_EQ(prices->off_peak, (TokenPrices{.hit = 2'800, .miss = 140'000, .output = 280'000}));
  EXPECT_EQ(prices->peak, (TokenPrices{.hit = 10'000, .miss = 1'000'000, .output = 2'000'000}));
  EXPECT_FALSE(prices->IsPeak(At("2026-09-13T06:29")));  // a Sunday
  EXPECT_TRUE(prices->IsPeak(At("2026-09-13T06:30")));
  EXPECT_TRUE(prices->IsPeak(At("2026-09-13T23:59")));
  EXPECT_FALSE(prices->IsPeak(At("2026-09-15T12:00")));  // a Tuesday
}

TEST(PriceTable, WithoutAPeakIsOffPeakAlways) {
  const auto prices =
      ParsePriceTable(R"({"name":"flat","off_peak":{"hit":0,"miss":0.000001,"output":1000}})");
  ASSERT_TRUE(prices.ok()) << prices.status().ToString();
  EXPECT_EQ(prices->At(At("2026-09-10T02:00")), (TokenPrices{0, 1, kMaxTokenPrice}));
}

std::string Refusal(const std::string& json) { return ParsePriceTable(json).status().message(); }

// A table whose second half is `rest`.
std::string RefusalOfPeak(const std::string& rest) {
  return Refusal(R"({"name":"n","off_peak":{"hit":0,"miss":1,"output":1},)" + rest + "}");
}

TEST(PriceTable, RefusalsNameTheFieldWhatWasFoundAndWhatIsAllowed) {
  EXPECT_EQ(Refusal("{"), "not complete JSON");
  EXPECT_EQ(Refusal("{}"), "name is missing; allowed: a text");
  EXPECT_EQ(Refusal(R"({"name":"n"})"),
            "off_peak is missing; allowed: an object with hit, miss and output");
  EXPECT_EQ(Refusal(R"({"name":"n","offpeak":1})"),
            "\"offpeak\" is not known; allowed: name, off_peak, peak, peak_windows");
  EXPECT_EQ(
      Refusal(R"({"name":"n","off_peak":{"hit":-1,"miss":1,"output":1}})"),
      "off_peak.hit is -1; allowed: dollars per million tokens, a number from 0 to 1000 with at "
      "most six decimals");
  for (const char* price : {"0.0000001", "0.1234567", "1000.1", "1e300", "\"0.15\"", "true"}) {
    const std::string refusal = Refusal(std::string(R"({"name":"n","off_peak":{"hit":0,"miss":)") +
                                        price + R"(,"output":1}})");
    EXPECT_EQ(refusal.rfind("off_peak.miss is ", 0), 0u) << price << ": " << refusal;
  }
  EXPECT_EQ(RefusalOfPeak(R"("peak":{"hit":0,"miss":1,"output":1})"),
            "peak_windows is missing; allowed: a list of windows");
  const std::string peak = R"("peak":{"hit":0,"miss":1,"output":1},"peak_windows":)";
  EXPECT_EQ(
      RefusalOfPeak(peak + R"([{"days":["Mon"],"begin":"01:00","end":"02:00"}])"),
      "peak_windows[0].days is \"Mon\"; allowed: a list of sun, mon, tue, wed, thu, fri, sat");
  EXPECT_EQ(RefusalOfPeak(peak + R"([{"days":["mon"],"begin":"02:00","end":"02:00"}])"),
            "peak_windows[0].end is \"02:00\"; allowed: a time after begin");
  for (const char* time : {"1:00", "24:01", "10:60", "-1:00", "01-00", "ab:cd"}) {
    EXPECT_EQ(RefusalOfPeak(peak + R"([{"days":["mon"],"begin":")" + time + R"(","end":"24:00"}])"),
              std::string("peak_windows[0].begin is \"") + time +
                  "\"; allowed: a time of the day (UTC) from \"00:00\" to \"24:00\"");
  }
}

TEST(Money, SumsThatWouldOverflowAreRefused) {
  PicoDollars sum = std::numeric_limits<PicoDollars>::max() - 1;
  EXPECT_TRUE(AddMoney(1, &sum).ok());
  EXPECT_EQ(AddMoney(1, &sum).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(sum, std::numeric_limits<PicoDollars>::max());
}

TEST(Money, IsShownInMicroDollars) {
  EXPECT_EQ(DollarText(0), "$0.000000");
  EXPECT_EQ(DollarText(499'999), "$0.000000");
  EXPECT_EQ(DollarText(500'000), "$0.000001");
  EXPECT_EQ(DollarText(12'345'678'000'000), "$12.345678");
  EXPECT_EQ(DollarText(-1'000'000), "-$0.000001");
  EXPECT_EQ(DollarText(-1), "$0.000000");
  EXPECT_EQ(DollarText(std::numeric_limits<PicoDollars>::min()), "-$9223372.036855");
}

}  // namespace
}  // namespace emberkv
