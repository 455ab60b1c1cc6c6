#include "engine/step_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace emberkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kStep = 512;

TEST(StepPacker, ASpanAloneTakesTheWholeStep) {
  StepPacker packer(kStep);
  EXPECT_THAT(packer.Pack(std::vector<SpanWish>{{.rows = 2000}}), ElementsAre(512));
  EXPECT_THAT(packer.Pack(std::vector<SpanWish>{{.rows = 100}}), ElementsAre(100));
}

TEST(StepPacker, DecodesGoFirstAndPrefillTakesTheRest) {
  StepPacker packer(kStep);
  std::vector<SpanWish> wishes(100, {.rows = 1});
  wishes.insert(wishes.begin(), {.rows = 2000});
  const std::vector<int64_t> granted = packer.Pack(wishes);
  EXPECT_EQ(granted[0], 412);
  EXPECT_THAT(std::vector<int64_t>(granted.begin() + 1, granted.end()), Each(1));
}

TEST(StepPacker, ManyDecodesDoNotStarveAPrefill) {
  StepPacker packer(kStep);
  std::vector<SpanWish> wishes(600, {.rows = 1});
  wishes.push_back({.rows = 2000});
  const std::vector<int64_t> granted = packer.Pack(wishes);
  EXPECT_EQ(granted.back(), kStep / 4);
  EXPECT_EQ(std::accumulate(granted.begin(), granted.end() - 1, int64_t{0}), kStep);  // the others wait
}

// Case R07: the replays of many sessions that come back share a step.
TEST(StepPacker, Case_R07_ReplaysArePackedTogether) {
  StepPacker packer(kStep);
  EXPECT_THAT(packer.Pack(std::vector<SpanWish>(4, {.rows = 128})), Each(128));
  EXPECT_THAT(packer.Pack(std::vector<SpanWish>(16, {.rows = 32})), Each(32));
}

TEST(StepPacker, AShortSpanPassesALongPrefillOfTheSameTenant) {
  StepPacker packer(kStep);
  EXPECT_THAT(packer.Pack(std::vector<SpanWish>{{.rows = 512, .served = 9000}, {.rows = 100, .served = 0}}),
              ElementsAre(412, 100));
}

// A tenant with many prompts at once gets no more than one with a single prompt.
TEST(StepPacker, TenantsShareEvenlyOverTime) {
  StepPacker packer(kStep);
  int64_t rows[2] = {};
  std::vector<int64_t> served(9);
  for (int step = 0; step < 400; ++step) {
    std::vector<SpanWish> wishes;
    for (size_t i = 0; i < 9; ++i) wishes.push_back({512, i < 8 ? 1u : 2u, served[i]});
    const std::vector<int64_t> granted = packer.Pack(wishes);
    for (size_t i = 0; i < 9; ++i) {
      served[i] += granted[i];
      rows[i < 8 ? 0 : 1] += granted[i];
    }
    EXPECT_EQ(std::accumulate(granted.begin(), granted.end(), int64_t{0}), kStep);
  }
  EXPECT_NEAR(static_cast<double>(rows[0]), static_cast<double>(rows[1]), 0.3 * static_cast<double>(rows[1]));
}

TEST(StepPacker, ATenantThatWasAwayHasSavedUpNothing) {
  StepPacker packer(kStep);
  for (int step = 0; step < 100; ++step) packer.Pack(std::vector<SpanWish>{{512, 1, 0}});
  int64_t first = 0;
  for (int step = 0; step < 10; ++step) {
    first += packer.Pack(std::vector<SpanWish>{{512, 1, 512 * step}, {512, 2, 256 * step}})[0];
  }
  EXPECT_GT(first, 10 * kStep / 3);
}

TEST(StepPacker, AStreamOfShortSpansDoesNotStarveTheOldest) {
  StepPacker packer(kStep);
  int64_t granted = 0;
  for (int step = 0; step < 20; ++step) {
    std::vector<SpanWish> wishes(10, {.rows = 128, .served = 0});
    wishes.insert(wishes.begin(), {.rows = 100'000, .served = 50'000});
    granted += packer.Pack(wishes)[0];
  }
  EXPECT_EQ(granted, 20 * kStep / 4);
}

TEST(StepPacker, AStepOfOneTokenServesPrefillAndDecode) {
  StepPacker packer(1);
  EXPECT_THAT(packer.Pack(std::vector<SpanWish>{{.rows = 1}, {.rows = 5}}), ElementsAre(1, 1));
}

}  // namespace
}  // namespace emberkv
