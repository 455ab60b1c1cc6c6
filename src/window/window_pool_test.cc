#include "window/window_pool.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/fake_clock.h"

namespace emberkv {
namespace {

constexpr int64_t kSecond = 1'000'000;

BlockHash Boundary(int i) { return Sha256("boundary " + std::to_string(i)); }

WindowCheckpoint Checkpoint(size_t bytes, uint8_t value) {
  return {std::vector<uint8_t>(bytes - 8, value),
          std::vector<uint8_t>(8, static_cast<uint8_t>(value + 1))};
}

class WindowPoolTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  WindowPool pool_{{.budget_bytes = 300}, &clock_};
};

TEST_F(WindowPoolTest, GivesBackWhatWasPut) {
  EXPECT_TRUE(pool_.Put(Boundary(1), Checkpoint(100, 7)));
  const auto found = pool_.Get(Boundary(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->windows, std::vector<uint8_t>(92, 7));
  EXPECT_EQ(found->tails, std::vector<uint8_t>(8, 8));
  const WindowPoolStats stats = pool_.stats();
  EXPECT_EQ(stats.bytes, 100u);
  EXPECT_EQ(stats.checkpoints, 1u);
  EXPECT_EQ(stats.hits, 1u);
}

TEST_F(WindowPoolTest, Case_W08_KnowsNoWindowForAnotherBoundary) {
  pool_.Put(Boundary(1), Checkpoint(100, 7));
  EXPECT_FALSE(pool_.Get(Boundary(2)));
  EXPECT_EQ(pool_.stats().misses, 1u);
}

TEST_F(WindowPoolTest, ForgetsAfterItsTime) {
  pool_.Put(Boundary(1), Checkpoint(100, 7));
  clock_.Advance(kDefaultWindowTtlUs - 1);
  EXPECT_TRUE(pool_.Get(Boundary(1)));
  clock_.Advance(kDefaultWindowTtlUs - 1);
  EXPECT_TRUE(pool_.Get(Boundary(1))) << "the time runs from the last use";
  clock_.Advance(kDefaultWindowTtlUs);
  EXPECT_FALSE(pool_.Get(Boundary(1)));
  EXPECT_EQ(pool_.stats().expired, 1u);
  EXPECT_EQ(pool_.stats().bytes, 0u);
}

TEST_F(WindowPoolTest, Case_Q10_WallClockJumpsForgetNothingAndKeepNothing) {
  const int64_t ten_days = 10 * 86'400 * kSecond;
  pool_.Put(Boundary(1), Checkpoint(100, 7));
  clock_.JumpWall(ten_days);
  EXPECT_TRUE(pool_.Get(Boundary(1)));
  clock_.JumpWall(-2 * ten_days);
  EXPECT_TRUE(pool_.Get(Boundary(1)));
  clock_.Advance(kDefaultWindowTtlUs);
  EXPECT_FALSE(pool_.Get(Boundary(1)));
}

TEST_F(WindowPoolTest, MakesRoomByLeastRecentUse) {
  for (int i = 1; i <= 3; ++i) pool_.Put(Boundary(i), Checkpoint(100, 1));
  EXPECT_TRUE(pool_.Get(Boundary(1)));
  pool_.Put(Boundary(4), Checkpoint(100, 1));
  EXPECT_TRUE(pool_.Get(Boundary(1)));
  EXPECT_FALSE(pool_.Get(Boundary(2)));
  EXPECT_TRUE(pool_.Get(Boundary(3)));
  EXPECT_TRUE(pool_.Get(Boundary(4)));
  EXPECT_EQ(pool_.stats().evicted, 1u);
}

TEST_F(WindowPoolTest, NeverExceedsItsBudget) {
  for (int i = 0; i < 50; ++i) {
    pool_.Put(Boundary(i % 7), Checkpoint(static_cast<size_t>(20 + i * 37 % 280), 1));
    ASSERT_LE(pool_.stats().bytes, 300u);
  }
  EXPECT_GT(pool_.stats().evicted, 0u);
}

TEST_F(WindowPoolTest, Case_Q08_RefusesACheckpointOverTheWholeBudget) {
  pool_.Put(Boundary(1), Checkpoint(100, 1));
  EXPECT_FALSE(pool_.Put(Boundary(2), Checkpoint(301, 1)));
  EXPECT_TRUE(pool_.Get(Boundary(1))) << "nothing made room in vain";
  EXPECT_EQ(pool_.stats().too_large, 1u);
}

TEST_F(WindowPoolTest, ALaterCheckpointTakesTheEarlierOnesPlace) {
  pool_.Put(Boundary(1), Checkpoint(100, 1));
  pool_.Put(Boundary(1), Checkpoint(50, 5));
  EXPECT_EQ(pool_.Get(Boundary(1))->windows[0], 5);
  EXPECT_EQ(pool_.stats().bytes, 50u);
  EXPECT_EQ(pool_.stats().checkpoints, 1u);
}

TEST_F(WindowPoolTest, WhatWasGivenOutOutlivesItsEviction) {
  pool_.Put(Boundary(1), Checkpoint(300, 1));
  const auto held = pool_.Get(Boundary(1));
  pool_.Put(Boundary(2), Checkpoint(300, 9));
  EXPECT_FALSE(pool_.Get(Boundary(1)));
  EXPECT_EQ(held->windows, std::vector<uint8_t>(292, 1));
}

TEST_F(WindowPoolTest, Case_R08_APoolSmallerThanTheWorkingSetBlocksNobody) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t, &wrong] {
      for (int i = 0; i < 500; ++i) {
        const int boundary = (i + t) % 10;
        const auto found = pool_.Get(Boundary(boundary));
        if (found && found->windows[0] != boundary) ++wrong[static_cast<size_t>(t)];
        pool_.Put(Boundary(boundary), Checkpoint(100, static_cast<uint8_t>(boundary)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(pool_.stats().checkpoints, 3u);
  EXPECT_EQ(pool_.stats().stored, 2000u);
}

TEST(DefaultWindowBudget, IsATenthOfMemory) {
  const auto budget = DefaultWindowBudget();
  ASSERT_TRUE(budget.ok()) << budget.status().ToString();
  EXPECT_GT(*budget, size_t{1} << 24);
}

}  // namespace
}  // namespace emberkv
