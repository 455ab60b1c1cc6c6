#include "weights/inventory.h"

#include <gtest/gtest.h>

#include <map>

namespace emberkv {
namespace {

class ReleasedInventory : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<ModelConfig> config = LoadModelConfig(EMBERKV_TEST_DATA "/configs/released.json");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    config_ = *config;
    Result<Inventory> inventory = Inventory::Make(config_);
    ASSERT_TRUE(inventory.ok()) << inventory.status().ToString();
    inventory_ = std::move(*inventory);
  }

  ModelConfig config_;
  Inventory inventory_;
};

// The released checkpoint has 96,085 tensors: 2,401 in mtp.*, 266 for images, the rest is text.
TEST_F(ReleasedInventory, HasTheReleasedCounts) {
  std::map<TensorFamily, int> counts;
  for (const TensorSpec& spec : inventory_.tensors()) ++counts[spec.family];
  EXPECT_EQ(counts[TensorFamily::kEmbedding], 2);
  EXPECT_EQ(counts[TensorFamily::kNorm], 81);
  EXPECT_EQ(counts[TensorFamily::kHyperConnection], 240);
  EXPECT_EQ(counts[TensorFamily::kAttention], 5 * 80 + 80 + 40);
  EXPECT_EQ(counts[TensorFamily::kCompressor], 4 + 3 + 4);
  EXPECT_EQ(counts[TensorFamily::kIndexer], 16 + 8 + 4 + 4);
  EXPECT_EQ(counts[TensorFamily::kRouter], 120);
  EXPECT_EQ(counts[TensorFamily::kRoutedExperts], 61440 + 30720);
  EXPECT_EQ(counts[TensorFamily::kSharedExperts], 240);
  EXPECT_EQ(counts[TensorFamily::kEngramTable], 4);
  EXPECT_EQ(counts[TensorFamily::kEngram], 8);
  EXPECT_EQ(inventory_.tensors().size(), 96085u - 2401u - 266u);
}

TEST_F(ReleasedInventory, HasTheReleasedShapes) {
  struct Expected {
    const char* name;
    DType dtype;
    std::vector<int64_t> shape;
  };
  const Expected all[] = {
      {"embed.weight", DType::kBF16, {129280, 5120}},
      {"layers.39.hc_ffn_fn", DType::kF32, {24, 20480}},
      {"layers.0.attn.wq_b.weight", DType::kF8E4M3, {32768, 1280}},
      {"layers.0.attn.wq_b.scale", DType::kF8E8M0, {1024, 40}},
      {"layers.0.attn.wo_a.weight", DType::kF8E4M3, {8192, 4096}},
      {"layers.0.attn.wo_a.scale", DType::kF8E8M0, {256, 128}},
      {"layers.36.attn.indexer.wq_b.weight", DType::kF8E4M3, {4096, 1280}},
      {"layers.20.attn.indexer.wk.weight", DType::kBF16, {128, 512}},
      {"layers.7.ffn.experts.383.w1.weight", DType::kI8, {2304, 2560}},
      {"layers.7.ffn.experts.383.w2.scale", DType::kF8E8M0, {5120, 72}},
      {"layers.14.engram.embed.weight", DType::kF8E4M3, {384016682, 256}},
      {"layers.14.engram.embed.scale", DType::kF8E8M0, {384016682, 8}},
      {"layers.1.engram.wkv.scale", DType::kF8E8M0, {800, 192}},
  };
  for (const Expected& expected : all) {
    const TensorSpec* spec = inventory_.Find(expected.name);
    ASSERT_NE(spec, nullptr) << expected.name;
    EXPECT_EQ(spec->dtype, expected.dtype) << expected.name;
    EXPECT_EQ(spec->shape, expected.shape) << expected.name;
  }
  // Ratio 1 has no gate; a layer that reuses has neither compressor nor indexer.
  EXPECT_EQ(inventory_.Find("layers.20.attn.compressor.wgate.weight"), nullptr);
  EXPECT_EQ(inventory_.Find("layers.3.attn.compressor.wkv.weight"), nullptr);
  EXPECT_EQ(inventory_.Find("layers.24.attn.indexer.wk.weight"), nullptr);
  EXPECT_EQ(inventory_.Find("layers.40.attn_norm.weight"), nullptr);
}

TEST_F(ReleasedInventory, SuggestsTheNameThatWasMeant) {
  EXPECT_EQ(inventory_.Suggestion("layers.3.attn.wq_a.weigth"), "layers.3.attn.wq_a.weight");
  EXPECT_EQ(inventory_.Suggestion("layers.3.attn.q_nrm.weight"), "layers.3.attn.q_norm.weight");
  EXPECT_EQ(inventory_.Suggestion("model.layers.3.attn.wkv.weight"), "layers.3.attn.wkv.weight");
  EXPECT_EQ(inventory_.Suggestion("transformer.wte"), "");
}

TEST_F(ReleasedInventory, AbsurdNumberOfExpertsIsRefused) {
  config_.n_routed_experts = 1 << 16;
  const Result<Inventory> inventory = Inventory::Make(config_);
  ASSERT_FALSE(inventory.ok());
  EXPECT_NE(inventory.status().message().find("n_routed_experts 65536"), std::string::npos);
}

TEST(UnusedFamilies, AreKnownByExactNames) {
  EXPECT_EQ(UnusedFamilyOf("mtp.0.main_proj.weight"), TensorFamily::kDraftStages);
  EXPECT_EQ(UnusedFamilyOf("vision.layers.0.qkv.weight"), TensorFamily::kVision);
  EXPECT_EQ(UnusedFamilyOf("aligner.w1.weight"), TensorFamily::kAligner);
  for (const char* name : {"image_start", "image_end", "image_newline"}) {
    EXPECT_EQ(UnusedFamilyOf(name), TensorFamily::kImageTokens);
  }
  for (const char* name : {"mtp", "mtpx.0", "visionary.a", "image_begin", "layers.0.mtp.x", ""}) {
    EXPECT_EQ(UnusedFamilyOf(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace emberkv
