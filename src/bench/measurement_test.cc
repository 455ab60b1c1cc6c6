#include "bench/measurement.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

// A contender that notes its turns and otherwise does next to nothing.
Contender Noting(const std::string& name, double amount, std::string* turns) {
  return {name, amount, [name, turns] { *turns += name; }};
}

TEST(Measure, SubjectBetweenTwoProbesOfTheLimitTakesTurnsWithTheRival) {
  std::string turns;
  MeasurementSpec spec;
  spec.subject = Noting("s", 1, &turns);
  spec.limit = Noting("l", 1, &turns);
  spec.rival = Noting("r", 1, &turns);
  (void)Measure(spec, 3);
  EXPECT_EQ(turns, "lslrlslrlslrlslr");  // the first round does not count
}

TEST(Measure, FirstRoundIsOnlyAWarmUp) {
  std::string turns;
  MeasurementSpec spec;
  spec.subject = Noting("s", 1, &turns);
  EXPECT_EQ(Measure(spec, 0).achieved, 0);
  EXPECT_EQ(turns, "s");
}

TEST(Measure, ReportsWhatWasAskedAndRatiosInOrder) {
  std::string turns;
  for (bool uses_thread_time : {false, true}) {
    MeasurementSpec spec;
    spec.name = "work";
    spec.unit = "GB/s";
    spec.threads = 2;
    spec.uses_thread_time = uses_thread_time;
    // No clock is so uneven that an amount of 1e30 does not win.
    spec.subject = Noting("mine", 1, &turns);
    spec.limit = Noting("DRAM read", 1e30, &turns);
    spec.rival = Noting("theirs", 1e-30, &turns);
    spec.goal = 0.5;
    const Measurement m = Measure(spec, 4);
    EXPECT_EQ(m.name, "work");
    EXPECT_EQ(m.unit, "GB/s");
    EXPECT_EQ(m.threads, 2);
    EXPECT_EQ(m.limit_name, "DRAM read");
    EXPECT_EQ(m.rival_name, "theirs");
    EXPECT_GT(m.achieved, 0);
    EXPECT_GT(m.limit, m.achieved);
    EXPECT_LT(m.rival, m.achieved);
    EXPECT_LT(m.ratio, 1e-10);
    EXPECT_LE(m.ratio_least, m.ratio);
    EXPECT_LE(m.ratio, m.ratio_most);
    EXPECT_GT(m.rival_ratio, 1e10);
    EXPECT_TRUE(m.misses_goal());
  }
}

TEST(Measure, WithoutLimitAndRivalThereIsNoRatio) {
  std::string turns;
  MeasurementSpec spec;
  spec.subject = Noting("s", 1, &turns);
  const Measurement m = Measure(spec, 2);
  EXPECT_GT(m.achieved, 0);
  EXPECT_EQ(m.limit, 0);
  EXPECT_EQ(m.ratio, 0);
  EXPECT_EQ(m.rival, 0);
  EXPECT_EQ(m.rival_ratio, 0);
  EXPECT_FALSE(m.misses_goal());
}

}  // namespace
}  // namespace emberkv
