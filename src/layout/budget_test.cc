#include "layout/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace emberkv {
namespace {

class Budget : public testing::Test {
 protected:
  void SetUp() override {
    Result<ModelConfig> config =
        LoadModelConfig(std::string(EMBERKV_TEST_DATA) + "/configs/released.json");
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = *config;
    Relayout();
  }

  void Relayout() {
    Result<CacheLayout> layout = MakeCacheLayout(config_);
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    layout_ = *layout;
  }

  double Weighted(const std::string& name, int64_t tokens) const {
    for (const OperationTerm& term : DecodeOperations(config_, layout_, tokens)) {
      if (term.name == name) return term.weighted();
    }
    ADD_FAILURE() << "no term " << name;
    return 0;
  }

  double Total(int64_t tokens) const {
    return TotalWeighted(DecodeOperations(config_, layout_, tokens));
  }

  ModelConfig config_;
  CacheLayout layout_;
};

constexpr int64_t k4K = 4096;
constexpr int64_t k1M = 1 << 20;

TEST_F(Budget, SessionsAreWholePagesAndOneSetOfWindows) {
  const SessionMemory memory = MemoryOfSession(layout_, 129);
  EXPECT_EQ(memory.pages, 2);
  EXPECT_EQ(memory.global_bytes, 2u * 113920);
  EXPECT_EQ(SessionBytes(memory, Tier::kSsd), 227840u);
  EXPECT_EQ(SessionBytes(memory, Tier::kHost), 227840u + 1351680 + 12288);
  EXPECT_EQ(SessionBytes(memory, Tier::kDevice), 227840u + 2703360 + 12288);
  EXPECT_EQ(MemoryOfSession(layout_, k1M).global_bytes, 890u << 20);
}

TEST_F(Budget, TiersHoldWholeSessionsAndWholePages) {
  const uint64_t session = SessionBytes(MemoryOfSession(layout_, k4K), Tier::kDevice);
  const TierFit fit = FitTier(layout_, Tier::kDevice, 3 * session - 1, k4K);
  EXPECT_EQ(fit.sessions, 2);
  EXPECT_EQ(FitTier(layout_, Tier::kDevice, 3 * session, k4K).sessions, 3);
  EXPECT_EQ(FitTier(layout_, Tier::kSsd, 113920 * 5 - 1, k4K).tokens, 4 * 128);
  EXPECT_EQ(FitTier(layout_, Tier::kSsd, 1, k4K).tokens, 0);
}

TEST_F(Budget, RetentionIsRateTimesHoursTimesBytesPerToken) {
  EXPECT_DOUBLE_EQ(RetainedBytes(layout_, 10000, 72), 2306880000000.0);  // 2.31 TB
}

TEST_F(Budget, DecodeTermsAreTheActiveParameters) {
  // Billions of active parameters: attention 5.06, experts 9.91, head 0.66, Engram 0.31, router
  // 0.08.
  EXPECT_NEAR(Weighted("attention projections", k4K), 5.06e9, 0.01e9);
  EXPECT_NEAR(Weighted("routed experts", k4K) + Weighted("shared experts", k4K), 9.91e9, 0.005e9);
  EXPECT_NEAR(Weighted("head", k4K), 2 * 0.662e9, 0.001e9);
  EXPECT_NEAR(Weighted("Engram", k4K), 0.3146e9, 0.0001e9);
  EXPECT_NEAR(Weighted("router", k4K), 2 * 0.0786e9, 0.0001e9);
}

TEST_F(Budget, IndexScanFollowsThePublishedFormula) {
  for (int64_t tokens : {int64_t{2048}, k4K, int64_t{16384}, int64_t{16386}, k1M}) {
    const double expected =
        5120.0 * double(tokens) + 8192.0 * double(std::min<int64_t>(tokens, 16384));
    EXPECT_DOUBLE_EQ(Weighted("index scan", tokens), expected) << tokens;
  }
}

TEST_F(Budget, AttentionStopsGrowingWithTopK) {
  EXPECT_DOUBLE_EQ(Weighted("attention", k1M), (38 * 640 + 2 * 128) * 131072.0);
  EXPECT_DOUBLE_EQ(Weighted("attention", 1024), Weighted("attention", k1M));
  // 100 tokens: the window holds them all, beside 50 rows of ratio 2 or 100 of ratio 1.
  EXPECT_DOUBLE_EQ(Weighted("attention", 100), (40 * 100 + 18 * 50 + 20 * 100) * 131072.0);
}

TEST_F(Budget, DecodeGrowsByAboutAQuarterFrom4KTo1M) {
  EXPECT_NEAR(Total(k4K), 20.2e9, 0.05e9);
  EXPECT_NEAR(Total(k1M), 25.7e9, 0.05e9);
  EXPECT_NEAR(Total(k1M) / Total(k4K), 1.27, 0.005);
}

TEST_F(Budget, DecodeFollowsTheConfig) {
  const double experts = Weighted("routed experts", k4K);
  config_.num_experts_per_tok = 3;
  EXPECT_DOUBLE_EQ(Weighted("routed experts", k4K), experts / 2);

  const double scan = Weighted("index scan", k1M);
  config_.candidate_topk_blocks = 1 << 20;  // a pool of everything
  EXPECT_GT(Weighted("index scan", k1M), scan);

  config_.engram_layer_ids.clear();
  EXPECT_EQ(Weighted("Engram", k4K), 0);
}

TEST_F(Budget, PrefillRunsTheDecoderForTheLastWindowOnly) {
  const TokenLayers count = PrefillTokenLayers(config_, layout_, 16410);
  EXPECT_EQ(count.computed, 330760);  // a public engine reports the same counts for this prompt
  EXPECT_EQ(count.full, 656400);
  EXPECT_DOUBLE_EQ(PrefillTokenLayers(config_, layout_, 128).share(), 1);

  config_.engram_layer_ids = {1, 30};
  Relayout();
  EXPECT_DOUBLE_EQ(PrefillTokenLayers(config_, layout_, 16410).share(), 1);
}

TEST_F(Budget, GenerationsAreDerivedFromTheirGeometry) {
  const double ours = GenerationOf(config_, layout_).bytes_per_token();
  EXPECT_EQ(GenerationV1().bytes_per_token(), 389120);
  EXPECT_EQ(GenerationV32().bytes_per_token(), 48068);
  EXPECT_EQ(GenerationV4Flash().bytes_per_token(), 3514.25);
  EXPECT_EQ(ours, 890);
  EXPECT_NEAR(GenerationV1().bytes_per_token() / ours, 437, 0.5);
  EXPECT_NEAR(GenerationV4Flash().bytes_per_token() / ours, 4, 0.1);
  EXPECT_NEAR(GenerationV4Flash().bytes_per_token() * kV4StoredPerGlobalByte / ours, 8, 0.15);

  config_.head_dim = 256;
  Relayout();
  EXPECT_EQ(GenerationOf(config_, layout_).bytes_per_token(), 530);
}

}  // namespace
}  // namespace emberkv
