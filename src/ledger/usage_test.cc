#include "ledger/usage.h"

#include <gtest/gtest.h>

#include "ledger/ledger_files.h"

namespace emberkv {
namespace {

UsageReport GoldenReport(UsageKey key) {
  UsageReport report(key);
  const Result<LedgerReading> reading =
      ReadLedgers({EMBERKV_TEST_DATA "/ledger/ledger.jsonl"},
                  [&](const LedgerLine& line) { return report.Add(line); });
  EXPECT_TRUE(reading.ok()) << reading.status().ToString();
  return report;
}

TEST(UsageReport, AddsUpTheGoldenLedger) {
  const UsageReport report = GoldenReport(UsageKey::kNone);
  EXPECT_EQ(report.total(), (UsageSums{.requests = 4,
                                       .failed = 1,
                                       .prompt_tokens = 2384,
                                       .hit_tokens = 1920,
                                       .replayed_tokens = 384,
                                       .miss_tokens = 464,
                                       .completion_tokens = 101,
                                       .bytes_read = 14848,
                                       .cost = {184'248'000, 598'200'000}}));
  EXPECT_EQ(report.total().saved(), 413'952'000);
  EXPECT_DOUBLE_EQ(report.total().hit_rate(), 1920.0 / 2384.0);
  EXPECT_TRUE(report.groups().empty());
}

TEST(UsageReport, GroupsByTenantDayAndEndpoint) {
  const auto tenants = GoldenReport(UsageKey::kTenant).groups();
  ASSERT_EQ(tenants.size(), 2u);
  EXPECT_EQ(tenants.at("alpha").requests, 3);
  EXPECT_EQ(tenants.at("alpha").cost, (Cost{164'448'000, 578'400'000}));
  EXPECT_EQ(tenants.at("beta").cost, (Cost{19'800'000, 19'800'000}));
  EXPECT_EQ(tenants.at("beta").hit_rate(), 0);

  const auto days = GoldenReport(UsageKey::kDay).groups();
  ASSERT_EQ(days.size(), 3u);
  EXPECT_EQ(days.at("2026-09-10").prompt_tokens, 2000);
  EXPECT_EQ(days.at("2026-09-12").failed, 1);

  const auto endpoints = GoldenReport(UsageKey::kEndpoint).groups();
  ASSERT_EQ(endpoints.size(), 2u);
  EXPECT_EQ(endpoints.at("/v1/completions").miss_tokens, 256);
}

TEST(UsageReport, RefusesSumsThatWouldOverflow) {
  UsageReport report(UsageKey::kNone);
  LedgerLine line;
  line.cost_without_cache_pico_usd = kMaxRequestCost;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(report.Add(line).ok());
  EXPECT_EQ(report.Add(line).code(), StatusCode::kResourceExhausted);
}

TEST(UsageSums, WithoutTokensHaveNoHitRate) { EXPECT_EQ(UsageSums().hit_rate(), 0); }

}  // namespace
}  // namespace emberkv
