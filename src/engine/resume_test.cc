#include "engine/resume.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

// 6 encoder and 4 decoder layers, window 32, as tiny-random.
CacheLayout Split() {
  CacheLayout layout;
  layout.layers.resize(10);
  layout.block_size = 128;
  layout.decoder_begin = 6;
  return layout;
}

TEST(PlanResume, LostWindowReplaysOneWindowAndMarksWhatFollows) {
  const ResumePlan plan = PlanResume(Split(), 32, ReplayMode::kBounded, 256, false, 513);
  EXPECT_EQ(plan.encoder_begin, 224);
  EXPECT_EQ(plan.decoder_begin, 481);
  EXPECT_EQ(plan.replayed(), 32);
  EXPECT_FALSE(plan.is_canonical);
  EXPECT_FALSE(plan.restores_checkpoint);
}

TEST(PlanResume, LiveWindowNeedsNoReplay) {
  const ResumePlan plan = PlanResume(Split(), 32, ReplayMode::kBounded, 256, true, 513);
  EXPECT_EQ(plan.replayed(), 0);
  EXPECT_TRUE(plan.is_canonical);
  EXPECT_TRUE(plan.restores_checkpoint);
}

TEST(PlanResume, ShortSuffixReplaysForTheDecoderAndKeepsTheLiveWindow) {
  const ResumePlan plan = PlanResume(Split(), 32, ReplayMode::kBounded, 256, true, 260);
  EXPECT_EQ(plan.encoder_begin, 224);
  EXPECT_EQ(plan.decoder_begin, 228);
  EXPECT_TRUE(plan.is_canonical);
  EXPECT_TRUE(plan.restores_checkpoint);
}

TEST(PlanResume, ReplayFromTheStartIsExact) {
  EXPECT_TRUE(PlanResume(Split(), 128, ReplayMode::kBounded, 128, false, 300).is_canonical);
  EXPECT_TRUE(PlanResume(Split(), 32, ReplayMode::kBounded, 0, false, 300).is_canonical);
}

TEST(PlanResume, ExactReachesBackAsFarAsWindowsChain) {
  // The golden replay cases enc_exact: min(H, dec_start) - Le * W.
  const ResumePlan covered = PlanResume(Split(), 32, ReplayMode::kExact, 256, false, 513);
  EXPECT_EQ(covered.decoder_begin, 385);
  EXPECT_EQ(covered.encoder_begin, 256 - 6 * 32);
  const ResumePlan below = PlanResume(Split(), 32, ReplayMode::kExact, 512, true, 513);
  EXPECT_EQ(below.decoder_begin, 385);
  EXPECT_EQ(below.encoder_begin, 385 - 6 * 32);
  EXPECT_TRUE(below.is_canonical);
  const ResumePlan live = PlanResume(Split(), 32, ReplayMode::kExact, 256, true, 513);
  EXPECT_EQ(live.replayed(), 0);
}

TEST(PlanResume, LayoutWithoutSplitIsResumedExactly) {
  CacheLayout layout = Split();
  layout.decoder_begin.reset();
  const ResumePlan plan = PlanResume(layout, 32, ReplayMode::kBounded, 512, false, 600);
  EXPECT_EQ(plan.encoder_begin, 512 - 10 * 32);
  EXPECT_TRUE(plan.is_canonical);
  EXPECT_EQ(PlanResume(layout, 32, ReplayMode::kBounded, 512, true, 600).replayed(), 0);
}

TEST(PlanResume, ModesSayWhatTheyReuse) {
  EXPECT_FALSE(MayReuse(ReplayMode::kFull));
  EXPECT_TRUE(MayReuse(ReplayMode::kExact));
  EXPECT_FALSE(MayReuseReplayed(ReplayMode::kExact));
  EXPECT_TRUE(MayReuseReplayed(ReplayMode::kBounded));
}

}  // namespace
}  // namespace emberkv
