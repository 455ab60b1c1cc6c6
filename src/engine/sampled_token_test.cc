#include "engine/sampled_token.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace emberkv {
namespace {

TEST(DescribeToken, GivesTheTokenAloneUnlessAsked) {
  const std::vector<float> logits = {1, 2, 3};
  const SampledToken token = DescribeToken(logits, 1, std::nullopt);
  EXPECT_EQ(token.token, 1);
  EXPECT_FALSE(token.logprob.has_value());
  EXPECT_TRUE(token.alternatives.empty());
}

TEST(DescribeToken, ProbabilitiesAreThoseOfTheSoftmax) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};  // 1/8, 2/8, 5/8
  const SampledToken token = DescribeToken(logits, 0, 2);
  EXPECT_NEAR(*token.logprob, std::log(1.0 / 8), 1e-6);
  ASSERT_EQ(token.alternatives.size(), 2u);
  EXPECT_EQ(token.alternatives[0].token, 2);
  EXPECT_NEAR(token.alternatives[0].logprob, std::log(5.0 / 8), 1e-6);
  EXPECT_EQ(token.alternatives[1].token, 1);
}

TEST(DescribeToken, EqualTokensComeInOrderAndExtremesStayFinite) {
  const std::vector<float> logits = {500, -500, 500, -std::numeric_limits<float>::infinity()};
  const SampledToken token = DescribeToken(logits, 2, 20);
  ASSERT_EQ(token.alternatives.size(), 4u);
  EXPECT_EQ(token.alternatives[0].token, 0);
  EXPECT_EQ(token.alternatives[1].token, 2);
  EXPECT_NEAR(*token.logprob, std::log(0.5), 1e-6);
  EXPECT_NEAR(token.alternatives[2].logprob, std::log(0.5) - 1000, 1e-6);
}

TEST(DescribeToken, ZeroAlternativesGiveTheTokensOwn) {
  const std::vector<float> logits = {1, 1};
  EXPECT_NEAR(*DescribeToken(logits, 0, 0).logprob, std::log(0.5), 1e-9);
  EXPECT_TRUE(DescribeToken(logits, 0, 0).alternatives.empty());
}

}  // namespace
}  // namespace emberkv
