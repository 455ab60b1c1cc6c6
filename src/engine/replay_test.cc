#include "engine/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/model_config.h"

namespace emberkv {
namespace {

using ::testing::HasSubstr;

constexpr ReplayMode kAllModes[] = {ReplayMode::kBounded, ReplayMode::kExact, ReplayMode::kFull};

// A released-like stack: 20 + 20 layers; only what a replay depends on.
CacheLayout SplitLayout() {
  CacheLayout layout;
  layout.layers.resize(40);
  layout.decoder_begin = 20;
  return layout;
}

ReplayPlan Plan(ReplayMode mode, SequenceProgress held, int64_t total) {
  return PlanPrefill(SplitLayout(), 128, mode, held, total);
}

TEST(PlanPrefill, FreshSequencesRunTheLastRowsThroughTheDecoder) {
  const struct {
    ReplayMode mode;
    int64_t total;
    int64_t decoder_begin;
  } cases[] = {
      {ReplayMode::kBounded, 1, 0},      {ReplayMode::kBounded, 128, 0},
      {ReplayMode::kBounded, 129, 1},    {ReplayMode::kBounded, 10000, 9872},
      {ReplayMode::kExact, 2560, 0},     {ReplayMode::kExact, 2561, 1},
      {ReplayMode::kExact, 10000, 7440}, {ReplayMode::kFull, 1, 0},
      {ReplayMode::kFull, 10000, 0},
  };
  for (const auto& c : cases) {
    const ReplayPlan plan = Plan(c.mode, {}, c.total);
    EXPECT_EQ(plan.mode, c.mode);
    EXPECT_EQ(plan.decoder_begin, c.decoder_begin) << ReplayModeName(c.mode) << " " << c.total;
    EXPECT_EQ(plan.decoder_run_begin, c.decoder_begin);
    EXPECT_EQ(plan.begin, 0);
    EXPECT_EQ(plan.end, c.total);
    EXPECT_EQ(plan.note, "");
  }
}

TEST(PlanPrefill, ShortContinuationsKeepTheDecoderWindows) {
  // 10,000 tokens were prefilled bounded, so the decoder has rows from 9,872 on.
  for (const int64_t total : {10001, 10100, 10128}) {
    const ReplayPlan plan = Plan(ReplayMode::kBounded, {10000, 9872}, total);
    EXPECT_EQ(plan.decoder_begin, 9872);
    EXPECT_EQ(plan.decoder_run_begin, 10000);
    EXPECT_EQ(plan.begin, 10000);
    EXPECT_EQ(plan.note, "");
  }
}

TEST(PlanPrefill, LongContinuationsRestartTheDecoder) {
  const ReplayPlan bounded = Plan(ReplayMode::kBounded, {10000, 9872}, 10129);
  EXPECT_EQ(bounded.decoder_begin, 10001);
  EXPECT_EQ(bounded.decoder_run_begin, 10001);
  const ReplayPlan exact = Plan(ReplayMode::kExact, {10000, 9872}, 20000);
  EXPECT_EQ(exact.decoder_begin, 17440);
  EXPECT_EQ(exact.note, "");
}

TEST(PlanPrefill, SaysWhenEarlierRowsAreMissing) {
  const ReplayPlan exact = Plan(ReplayMode::kExact, {10000, 9872}, 10100);
  EXPECT_EQ(exact.decoder_begin, 9872);
  EXPECT_EQ(exact.decoder_run_begin, 10000);
  EXPECT_THAT(exact.note, HasSubstr("from token 7540 on"));
  const ReplayPlan full = Plan(ReplayMode::kFull, {10000, 9872}, 10100);
  EXPECT_EQ(full.decoder_begin, 9872);
  EXPECT_EQ(full.decoder_run_begin, 10000);  // the new rows, in full
  EXPECT_THAT(full.note, HasSubstr("from 9872 on"));
  EXPECT_EQ(Plan(ReplayMode::kExact, {10000, 7440}, 10100).note, "");
  EXPECT_EQ(Plan(ReplayMode::kFull, {10000, 0}, 10100).note, "");
}

TEST(PlanPrefill, ARestartThatWasCutOffGoesOn) {
  // A bounded prefill of 1,000 tokens cancelled after 512, before any decoder row, and after 896.
  EXPECT_EQ(Plan(ReplayMode::kBounded, {512, 872}, 1000).decoder_begin, 872);
  const ReplayPlan late = Plan(ReplayMode::kBounded, {896, 872}, 1000);
  EXPECT_EQ(late.decoder_begin, 872);
  EXPECT_EQ(late.decoder_run_begin, 896);
  // Something else comes instead: no decoder row is there, so its window begins with the new rows.
  const ReplayPlan other = Plan(ReplayMode::kBounded, {512, 872}, 520);
  EXPECT_EQ(other.decoder_begin, 512);
  EXPECT_EQ(other.decoder_run_begin, 512);
  EXPECT_THAT(other.note, HasSubstr("from 512 on"));
}

TEST(PlanPrefill, StacksWithoutASplitAlwaysRunInFull) {
  CacheLayout layout = SplitLayout();
  layout.decoder_begin.reset();
  for (const ReplayMode mode : kAllModes) {
    const ReplayPlan plan = PlanPrefill(layout, 128, mode, {}, 10000);
    EXPECT_EQ(plan.mode, ReplayMode::kFull);
    EXPECT_EQ(plan.decoder_begin, 0);
    EXPECT_EQ(PlannedTokenLayers(layout, plan), 400000);
    EXPECT_EQ(plan.note.empty(), mode == ReplayMode::kFull);
  }
}

TEST(PlannedTokenLayers, CountsRowsTimesLayers) {
  const CacheLayout layout = SplitLayout();
  EXPECT_EQ(PlannedTokenLayers(layout, Plan(ReplayMode::kBounded, {}, 1000)), 1000 * 20 + 128 * 20);
  EXPECT_EQ(PlannedTokenLayers(layout, Plan(ReplayMode::kFull, {}, 1000)), 1000 * 40);
  EXPECT_EQ(PlannedTokenLayers(layout, Plan(ReplayMode::kBounded, {1000, 872}, 1010)), 10 * 40);
}

TEST(PlannedTokenLayers, At32KBoundedAndExactStayUnder056OfFull) {
  for (const char* dir : {EMBERKV_SOURCE_DIR "/models/ember-tiny/config.json",
                          EMBERKV_TEST_DATA "/configs/released.json"}) {
    const auto config = LoadModelConfig(dir);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    const auto layout = MakeCacheLayout(*config);
    ASSERT_TRUE(layout.ok()) << layout.status().ToString();
    const double full = static_cast<double>(FullTokenLayers(*layout, 32768));
    for (const ReplayMode mode : {ReplayMode::kBounded, ReplayMode::kExact}) {
      const ReplayPlan plan = PlanPrefill(*layout, config->sliding_window, mode, {}, 32768);
      const auto planned = static_cast<double>(PlannedTokenLayers(*layout, plan));
      EXPECT_LT(planned, 0.56 * full) << dir << " " << ReplayModeName(mode);
      EXPECT_GT(planned, 0.50 * full) << dir << " " << ReplayModeName(mode);
    }
  }
}

TEST(ParseReplayMode, ReadsItsOwnNamesOnly) {
  for (const ReplayMode mode : kAllModes) {
    const auto parsed = ParseReplayMode(ReplayModeName(mode));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, mode);
  }
  const auto refused = ParseReplayMode("Full");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("'Full'"));
}

}  // namespace
}  // namespace emberkv
