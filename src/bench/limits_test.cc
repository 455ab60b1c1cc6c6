#include "bench/limits.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

TEST(Limits, EveryProbeCountsWhatItDoesAndRuns) {
  for (int threads : {1, 2}) {
    for (const Contender& limit : {FmaLimit(threads), Bf16DotLimit(threads), Int8DotLimit(threads),
                                   DramReadLimit(threads)}) {
      EXPECT_FALSE(limit.name.empty());
      EXPECT_GT(limit.amount, 0) << limit.name;
      MeasurementSpec spec;
      spec.subject = limit;
      EXPECT_GT(Measure(spec, 1).achieved, 0) << limit.name;
    }
  }
}

TEST(Limits, TwoThreadsAreGivenTwiceTheArithmetic) {
  EXPECT_DOUBLE_EQ(FmaLimit(2).amount, 2 * FmaLimit(1).amount);
  EXPECT_DOUBLE_EQ(Bf16DotLimit(2).amount, 2 * Bf16DotLimit(1).amount);
}

TEST(Limits, CoreClockIsAClock) {
  const double ghz = CoreGhz();
  EXPECT_GT(ghz, 0.1);
  EXPECT_LT(ghz, 20);
}

}  // namespace
}  // namespace emberkv
