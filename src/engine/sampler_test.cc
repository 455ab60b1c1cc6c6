#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

Sampler MakeSampler(double temperature, double top_p = 1, uint64_t seed = 0) {
  return std::move(Sampler::Make({temperature, top_p, seed})).value();
}

int32_t Sample(Sampler& sampler, const std::vector<float>& logits) {
  const Result<int32_t> token = sampler.Sample(logits);
  EXPECT_TRUE(token.ok()) << token.status().ToString();
  return token.ok() ? *token : -1;
}

std::vector<int> Counts(Sampler sampler, const std::vector<float>& logits, int draws) {
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(Sample(sampler, logits))];
  return counts;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  Sampler greedy = MakeSampler(0);
  EXPECT_EQ(Sample(greedy, {1, 3, 2}), 1);
  EXPECT_EQ(Sample(greedy, {1, 3, 2, 3, 3}), 1);
  EXPECT_EQ(Sample(greedy, {-INFINITY, -5, -INFINITY}), 1);
  EXPECT_EQ(Sample(greedy, {0.0f, -0.0f}), 0);
  EXPECT_EQ(Sample(greedy, {-0.0f, 0.0f}), 0);
}

TEST(Sampler, TemperatureOneDrawsTheSoftmax) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f), -INFINITY};
  const std::vector<int> counts = Counts(MakeSampler(1, 1, 7), logits, 20000);
  EXPECT_NEAR(counts[0], 10000, 300);  // four standard deviations are 283
  EXPECT_NEAR(counts[1], 6000, 300);
  EXPECT_NEAR(counts[2], 4000, 300);
  EXPECT_EQ(counts[3], 0);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<float> logits = {std::log(0.8f), std::log(0.2f)};
  // Probabilities to the power of 1 / temperature: 0.64 to 0.04, and 0.894 to 0.447.
  EXPECT_NEAR(Counts(MakeSampler(0.5, 1, 1), logits, 20000)[0], 20000 * 0.64 / 0.68, 300);
  EXPECT_NEAR(Counts(MakeSampler(2.0, 1, 1), logits, 20000)[0], 20000 * 0.8944 / 1.3416, 300);
}

TEST(Sampler, TinyTemperatureIsGreedy) {
  Sampler sampler = MakeSampler(std::numeric_limits<double>::denorm_min());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Sample(sampler, {1, 1.0001f, -8}), 1);
}

TEST(Sampler, TopPKeepsTheFewestTokensThatReachIt) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  const std::vector<int> two = Counts(MakeSampler(1, 0.75, 3), logits, 20000);
  EXPECT_EQ(two[0], 0);
  EXPECT_NEAR(two[1], 20000 * 0.5 / 0.8, 300);
  EXPECT_NEAR(two[2], 20000 * 0.3 / 0.8, 300);
  EXPECT_EQ(Counts(MakeSampler(1, 0.4, 3), logits, 1000)[1], 1000);
  EXPECT_EQ(Counts(MakeSampler(1, 1e-300, 3), logits, 1000)[1], 1000);
}

TEST(Sampler, TopPPrefersLowIdsAmongEquals) {
  const std::vector<int> counts = Counts(MakeSampler(1, 0.5, 3), {0, 0, 0, 0}, 1000);
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[2] + counts[3], 0);
}

TEST(Sampler, EqualSeedsGiveEqualDrawsAndOthersDiffer) {
  const std::vector<float> logits(50, 0.0f);
  std::set<std::vector<int32_t>> runs;
  for (const uint64_t seed : {5u, 5u, 6u}) {
    Sampler sampler = MakeSampler(1, 1, seed);
    std::vector<int32_t> run;
    for (int i = 0; i < 20; ++i) run.push_back(Sample(sampler, logits));
    runs.insert(run);
  }
  EXPECT_EQ(runs.size(), 2u);
}

TEST(Sampler, RefusesBadOptionsWithFieldAndValue) {
  for (const double temperature : {-0.1, double{NAN}, double{INFINITY}}) {
    const auto sampler = Sampler::Make({temperature, 1, 0});
    ASSERT_FALSE(sampler.ok()) << temperature;
    EXPECT_THAT(sampler.status().message(), HasSubstr("temperature is"));
  }
  for (const double top_p : {0.0, -1.0, 1.01, double{NAN}}) {
    const auto sampler = Sampler::Make({1, top_p, 0});
    ASSERT_FALSE(sampler.ok()) << top_p;
    EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(sampler.status().message(), HasSubstr("top_p is"));
  }
}

TEST(Sampler, BrokenLogitsAreAnInternalError) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler = MakeSampler(temperature);
    for (const std::vector<float>& logits :
         {std::vector<float>{1, NAN, 2}, {NAN, 1}, {1, INFINITY}, {-INFINITY, -INFINITY}, {}}) {
      EXPECT_EQ(sampler.Sample(logits).status().code(), StatusCode::kInternal);
    }
  }
}

}  // namespace
}  // namespace emberkv
