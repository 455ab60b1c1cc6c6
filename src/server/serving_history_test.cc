#include "server/serving_history.h"

#include <gtest/gtest.h>

#include "base/fake_clock.h"

namespace emberkv {
namespace {

constexpr int kBlockSize = 128;

LedgerLine LineOf(const std::string& tenant, int64_t prompt, int64_t hit, int64_t store_blocks) {
  LedgerLine line;
  line.tenant = tenant;
  line.prompt_tokens = prompt;
  line.hit_tokens = hit;
  line.miss_tokens = prompt - hit;
  line.completion_tokens = 5;
  line.store_blocks = store_blocks;
  line.cost_pico_usd = 10;
  line.cost_without_cache_pico_usd = 30;
  return line;
}

TEST(ServingHistory, TellsTokensByTierTenantAndInAll) {
  FakeClock clock;
  clock.SetWall(1'000'000'000);
  ServingHistory history(&clock, kBlockSize);
  history.Record(LineOf("a", 1000, 768, 2), 0);
  history.Record(LineOf("b", 100, 0, 0), 0);
  const HistorySnapshot snapshot = history.snapshot();
  EXPECT_EQ(snapshot.totals.requests, 2u);
  EXPECT_EQ(snapshot.totals.prompt_tokens, 1100);
  EXPECT_EQ(snapshot.totals.store_hit_tokens, 256);
  EXPECT_EQ(snapshot.totals.resident_hit_tokens, 512);
  EXPECT_EQ(snapshot.totals.miss_tokens, 332);
  EXPECT_EQ(snapshot.totals.cost_without_cache_pico_usd, 60);
  ASSERT_EQ(snapshot.by_tenant.size(), 2u);
  EXPECT_EQ(snapshot.by_tenant.at("b").prompt_tokens, 100);
  EXPECT_EQ(snapshot.by_tenant.at("a").hit_tokens(), 768);
}

TEST(ServingHistory, SamplesAreTenSecondsAndTheRingIsBounded) {
  FakeClock clock;
  ServingHistory history(&clock, kBlockSize);
  for (size_t i = 0; i < kHistorySamples + 3; ++i) {
    clock.SetWall(static_cast<int64_t>(i) * kHistorySampleMicros + 17);
    history.Record(LineOf("a", 10, 0, 0), 0);
    history.Record(LineOf("a", 10, 0, 0), 0);
  }
  const HistorySnapshot snapshot = history.snapshot();
  ASSERT_EQ(snapshot.samples.size(), kHistorySamples);
  EXPECT_EQ(snapshot.samples.front().begin_us, 3 * kHistorySampleMicros);
  EXPECT_EQ(snapshot.samples.back().totals.prompt_tokens, 20);
}

TEST(ServingHistory, AClockThatIsSetBackLosesNothing) {
  FakeClock clock;
  clock.SetWall(1'000'000'000);
  ServingHistory history(&clock, kBlockSize);
  history.Record(LineOf("a", 10, 0, 0), 0);
  clock.JumpWall(-500'000'000);
  history.Record(LineOf("a", 10, 0, 0), 0);
  const HistorySnapshot snapshot = history.snapshot();
  ASSERT_EQ(snapshot.samples.size(), 1u);
  EXPECT_EQ(snapshot.samples.front().totals.requests, 2u);
}

TEST(ServingHistory, PercentilesAreOfTheLastRequestsThatGotThatFar) {
  FakeClock clock;
  ServingHistory history(&clock, kBlockSize);
  LedgerLine line = LineOf("a", 10, 0, 0);
  history.Record(line, 0);  // refused: no first token
  EXPECT_EQ(history.snapshot().ttft.count, 0u);
  EXPECT_EQ(history.snapshot().ttft.p99, 0);
  for (size_t i = 1; i <= kHistoryLatencies + 100; ++i) {
    line.ttft_us = i <= 100 ? 900'000'000 : static_cast<int64_t>(i) * 1000;
    history.Record(line, 0.25);
  }
  const HistorySnapshot snapshot = history.snapshot();
  EXPECT_EQ(snapshot.ttft.count, kHistoryLatencies);
  EXPECT_DOUBLE_EQ(snapshot.ttft.p50, (100 + 512) * 1e-3);
  EXPECT_DOUBLE_EQ(snapshot.ttft.p99, (100 + 1014) * 1e-3);
  EXPECT_DOUBLE_EQ(snapshot.tpot.p90, 0.25);
}

}  // namespace
}  // namespace emberkv
