#include "layout/cache_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "formats/row_codec.h"
#include "layout/budget.h"

namespace emberkv {
namespace {

using ::testing::HasSubstr;

ModelConfig Config(const std::string& name) {
  Result<ModelConfig> config = LoadModelConfig(std::string(EMBERKV_TEST_DATA) + "/" + name);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}

ModelConfig Released() { return Config("configs/released.json"); }

CacheLayout Layout(const ModelConfig& config, int block_size = kDefaultBlockSize) {
  Result<CacheLayout> layout = MakeCacheLayout(config, block_size);
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  return layout.ok() ? *layout : CacheLayout();
}

// One letter per layer: Window-only, Full, reIndex, Reuse.
std::string Roles(const CacheLayout& layout) {
  std::string text;
  for (const LayerPlan& layer : layout.layers) text += "WFIR"[static_cast<int>(layer.role)];
  return text;
}

TEST(CacheLayout, ReleasedConfigHasThePublishedBytes) {
  const CacheLayout layout = Layout(Released());
  EXPECT_EQ(layout.kv_row_bytes, 288u);
  EXPECT_EQ(layout.key_row_bytes, 68u);
  EXPECT_EQ(layout.window_row_bytes, 528u);
  EXPECT_EQ(layout.main_bytes_per_token(), 720);
  EXPECT_EQ(layout.key_bytes_per_token(), 170);
  EXPECT_EQ(layout.bytes_per_token(), 890);
  EXPECT_EQ(layout.page_bytes, 113920u);
  EXPECT_EQ(layout.window_bytes(), 2703360u);
  EXPECT_EQ(layout.encoder_window_bytes(), 1351680u);
  EXPECT_EQ(layout.num_tails, 3);
  EXPECT_EQ(layout.tail_bytes, 12288u);
  EXPECT_EQ(layout.decoder_begin, 20);
  EXPECT_EQ(layout.encoder_layers(), 20);
  EXPECT_EQ(layout.decoder_layers(), 20);
}

TEST(CacheLayout, ReleasedConfigHasThePublishedRoles) {
  const CacheLayout layout = Layout(Released());
  EXPECT_EQ(Roles(layout), "WWFRRRRRFRRRRRFRRRRRFRRRIRRRIRRRIRRRIRRR");
  for (const LayerPlan& layer : layout.layers) {
    SCOPED_TRACE(layer.layer);
    const int n = layer.layer;
    EXPECT_EQ(layer.kv_source, n < 2 ? -1 : n < 8 ? 0 : n < 14 ? 1 : n < 20 ? 2 : 3);
    EXPECT_EQ(layer.index_source, n < 2 ? -1 : n < 8 ? 2 : n < 14 ? 8 : n < 20 ? 14 : n / 4 * 4);
    const bool filters = n == 24 || n == 28 || n == 32 || n == 36;
    EXPECT_EQ(layer.candidate, n == 20   ? CandidateRole::kMakes
                               : filters ? CandidateRole::kFilters
                                         : CandidateRole::kNone);
    EXPECT_EQ(layer.engram, n == 1 ? 0 : n == 14 ? 1 : -1);
  }
}

TEST(CacheLayout, SmallModelsFollowTheSameRules) {
  const CacheLayout random = Layout(Config("golden/tiny-random/config.json"));
  EXPECT_EQ(Roles(random), "WWFRFRFRIR");
  EXPECT_EQ(random.bytes_per_token(), 2 * (36 + 17));
  EXPECT_EQ(random.window_bytes(), 10u * 32 * 66);
  EXPECT_EQ(random.decoder_begin, 6);

  const CacheLayout wide = Layout(Config("golden/tiny-wide/config.json"));
  EXPECT_EQ(Roles(wide), "WFRFRFIRI");
  EXPECT_EQ(wide.bytes_per_token(), 2 * (72 + 34));
  EXPECT_EQ(wide.encoder_window_bytes(), 5u * 128 * 132);
  EXPECT_EQ(wide.layers[7].index_source, 6);

  const CacheLayout ember = Layout(Config("configs/ember-tiny.json"));
  EXPECT_EQ(Roles(ember), "WWFRFRIR");
  EXPECT_EQ(ember.bytes_per_token(), 1.5 * (36 + 34));
  EXPECT_EQ(ember.decoder_begin, 4);
  EXPECT_EQ(ember.tail_bytes, 2u * 64 * sizeof(float));
}

TEST(CacheLayout, EveryNumberComesFromTheConfig) {
  const CacheLayout released = Layout(Released());
  ModelConfig c = Released();
  c.head_dim = 256;
  EXPECT_EQ(Layout(c).bytes_per_token(), 2.5 * (144 + 68));
  EXPECT_EQ(Layout(c).window_bytes(), 40u * 128 * 264);
  EXPECT_EQ(Layout(c).tail_bytes, released.tail_bytes / 2);
  c = Released();
  c.index_head_dim = 64;
  EXPECT_EQ(Layout(c).bytes_per_token(), 2.5 * (288 + 34));
  c = Released();
  c.sliding_window = 64;
  EXPECT_EQ(Layout(c).window_bytes(), released.window_bytes() / 2);
  c = Released();
  for (int layer = 14; layer < 20; ++layer) c.compress_ratios[static_cast<size_t>(layer)] = 1;
  EXPECT_EQ(Layout(c).bytes_per_token(), 3 * 356);
  EXPECT_EQ(Layout(c).num_tails, 2);
  c = Released();
  c.index_source_layer_ids = {2, 8, 14, 20, 30};
  EXPECT_EQ(Layout(c).layers[24].role, LayerRole::kReuse);
  EXPECT_EQ(Layout(c).layers[31].index_source, 30);
  EXPECT_EQ(Layout(Released(), 64).page_bytes, released.page_bytes / 2);
}

TEST(CacheLayout, EngramBeyondTheBoundaryForbidsTheSplit) {
  ModelConfig c = Released();
  c.engram_layer_ids = {1, 20};
  EXPECT_EQ(Layout(c).decoder_begin, 20);  // before the projection that every row passes
  c.engram_layer_ids = {1, 21};
  const CacheLayout layout = Layout(c);
  EXPECT_EQ(layout.decoder_begin, std::nullopt);
  EXPECT_EQ(layout.encoder_layers(), 40);
  EXPECT_EQ(layout.encoder_window_bytes(), layout.window_bytes());
}

TEST(CacheLayout, NoLayerBeforeTheLastSourceForbidsTheSplit) {
  ModelConfig c = Released();
  c.compress_ratios.assign(40, 1);
  c.kv_source_layer_ids = {0};
  c.index_source_layer_ids = {0, 20};
  EXPECT_EQ(Layout(c).decoder_begin, std::nullopt);
}

// A consistent config with random depth, ratios, sources and sizes.
ModelConfig RandomConfig(std::mt19937& rng) {
  const auto pick = [&rng](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  ModelConfig c = Released();
  c.head_dim = 32 * pick(1, 20);
  c.index_head_dim = 32 * pick(1, 8);
  c.qk_rope_head_dim = 2 * pick(1, 16);
  c.sliding_window = pick(1, 300);
  c.num_hidden_layers = pick(2, 60);
  c.compress_ratios.clear();
  c.kv_source_layer_ids.clear();
  c.index_source_layer_ids.clear();
  const int last_source = pick(0, c.num_hidden_layers - 1);
  int ratio = 0;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const bool is_source = layer == last_source || (layer < last_source && pick(0, 3) == 0);
    if (is_source) {
      ratio = layer == last_source ? 1 : pick(1, 2);
      c.kv_source_layer_ids.push_back(layer);
    }
    const bool window_only = !is_source && pick(0, 5) == 0;
    c.compress_ratios.push_back(window_only ? 0 : ratio);
    if (is_source || (ratio > 0 && !window_only && pick(0, 2) == 0)) {
      c.index_source_layer_ids.push_back(layer);
    }
  }
  c.candidate_source_layer_id = last_source;
  c.engram_layer_ids = {pick(0, c.num_hidden_layers - 1)};
  c.engram_num_embeddings = {1000};
  return c;
}

TEST(CacheLayout, PagesOfRandomConfigsAreFilledWithoutGapOrOverlap) {
  std::mt19937 rng(20260910);
  for (int i = 0; i < 500; ++i) {
    const ModelConfig c = RandomConfig(rng);
    const int block_size = 2 * std::uniform_int_distribution<int>(1, 200)(rng);
    const CacheLayout layout = Layout(c, block_size);
    size_t end = 0;
    int tails = 0;
    for (const KvSource& source : layout.sources) {
      ASSERT_EQ(source.kv_offset, end);
      ASSERT_EQ(source.rows_per_block * source.ratio, block_size);
      const auto rows = static_cast<size_t>(source.rows_per_block);
      ASSERT_EQ(source.key_offset, end + rows * RowBytes(RowFormat::kGlobalKv, c.head_dim));
      end = source.key_offset + rows * RowBytes(RowFormat::kIndexKey, c.index_head_dim);
      ASSERT_EQ(source.tail_slot, source.ratio > 1 ? tails++ : -1);
    }
    ASSERT_EQ(layout.page_bytes, end);
    ASSERT_EQ(layout.num_tails, tails);
    ASSERT_EQ(layout.bytes_per_token() * block_size, static_cast<double>(end));
    ASSERT_EQ(GenerationOf(c, layout).bytes_per_token(), layout.bytes_per_token());
    ASSERT_EQ(layout.encoder_layers() + layout.decoder_layers(), c.num_hidden_layers);
  }
}

TEST(CacheLayout, LayersOfRandomConfigsReadTheLastSourceBeforeThem) {
  std::mt19937 rng(41);
  for (int i = 0; i < 500; ++i) {
    const ModelConfig c = RandomConfig(rng);
    const CacheLayout layout = Layout(c);
    ASSERT_EQ(layout.num_layers(), c.num_hidden_layers);
    int kv_source = -1, index_source = -1;
    for (const LayerPlan& layer : layout.layers) {
      SCOPED_TRACE(layer.layer);
      const bool makes_kv = std::ranges::count(c.kv_source_layer_ids, layer.layer) > 0;
      const bool makes_index = std::ranges::count(c.index_source_layer_ids, layer.layer) > 0;
      if (makes_kv) ++kv_source;
      if (makes_index) index_source = layer.layer;
      if (layer.ratio == 0) {
        ASSERT_EQ(layer.role, LayerRole::kWindowOnly);
        ASSERT_EQ(layer.kv_source, -1);
        continue;
      }
      ASSERT_EQ(layer.kv_source, kv_source);
      ASSERT_EQ(layer.index_source, index_source);
      ASSERT_EQ(layer.role, makes_kv      ? LayerRole::kFull
                            : makes_index ? LayerRole::kReindex
                                          : LayerRole::kReuse);
      ASSERT_EQ(layout.sources[static_cast<size_t>(layer.kv_source)].ratio, layer.ratio);
      ASSERT_EQ(layer.candidate == CandidateRole::kFilters,
                makes_index && layer.layer > c.candidate_source_layer_id);
    }
  }
}

struct Planted {
  std::function<void(ModelConfig&)> change;
  std::vector<std::string> words;  // of the message: field, value, rule
};

const Planted kPlanted[] = {
    {[](ModelConfig& c) { c.compress_ratios[3] = 4; },
     {"text_config.compress_ratios[3] is 4", "allowed: 0 (window only), 1 or 2"}},
    {[](ModelConfig& c) { c.compress_ratios[3] = -1; }, {"compress_ratios[3] is -1"}},
    {[](ModelConfig& c) { c.compress_ratios.resize(39); },
     {"text_config.compress_ratios has 39 entries", "at least num_hidden_layers, 40"}},
    {[](ModelConfig& c) { c.kv_source_layer_ids = {}; },
     {"text_config.kv_source_layer_ids is []", "at least one layer"}},
    {[](ModelConfig& c) { c.index_source_layer_ids = {}; }, {"index_source_layer_ids is []"}},
    {[](ModelConfig& c) {
       c.kv_source_layer_ids = {2, 14, 8, 20};
     },
     {"text_config.kv_source_layer_ids[2] is 8 after 14", "ascending order"}},
    {[](ModelConfig& c) {
       c.kv_source_layer_ids = {2, 8, 8, 20};
     },
     {"text_config.kv_source_layer_ids[2] is 8 after 8", "each once"}},
    {[](ModelConfig& c) {
       c.kv_source_layer_ids = {2, 8, 14, 40};
     },
     {"text_config.kv_source_layer_ids[3] is 40", "0 to 39"}},
    {[](ModelConfig& c) { c.index_source_layer_ids.push_back(40); },
     {"text_config.index_source_layer_ids[8] is 40", "0 to 39"}},
    {[](ModelConfig& c) { c.index_source_layer_ids[0] = 1; },
     {"text_config.index_source_layer_ids[0] is 1", "compress_ratios entry is 0", "ratio 1 or 2"}},
    {[](ModelConfig& c) { c.compress_ratios[8] = 0; },
     {"text_config.kv_source_layer_ids[1] is 8", "compress_ratios entry is 0"}},
    {[](ModelConfig& c) { c.compress_ratios[1] = 2; },
     {"text_config.compress_ratios[1] is 2", "before the first of kv_source_layer_ids, 2"}},
    {[](ModelConfig& c) { c.compress_ratios[5] = 1; },
     {"text_config.compress_ratios[5] is 1", "0, or 2 as its KV source, layer 2"}},
    {[](ModelConfig& c) {
       c.kv_source_layer_ids = {2, 8, 14, 20, 22};
     },
     {"text_config.kv_source_layer_ids[4] is 22", "index_source_layer_ids [2, 8, 14, 20, 24"}},
    {[](ModelConfig& c) { c.candidate_source_layer_id = 21; },
     {"text_config.candidate_source_layer_id is 21", "one of index_source_layer_ids"}},
    {[](ModelConfig& c) { c.candidate_source_layer_id = 14; },
     {"text_config.candidate_source_layer_id is 14", "entry is 2", "ratio 1"}},
    {[](ModelConfig& c) { c.kv_source_layer_ids.push_back(24); },
     {"text_config.candidate_source_layer_id is 20", "kv_source_layer_ids, 24", "the same rows"}},
    {[](ModelConfig& c) { c.candidate_topk_blocks = 64; },
     {"text_config.candidate_topk_blocks is 64", "as few as 505 rows", ">= index_topk, 512"}},
    {[](ModelConfig& c) { c.head_dim = 500; }, {"text_config.head_dim is 500", "multiple of 32"}},
};

TEST(CacheLayout, RefusesInconsistentConfigsByFieldValueAndRule) {
  for (const Planted& planted : kPlanted) {
    ModelConfig c = Released();
    planted.change(c);
    Result<CacheLayout> layout = MakeCacheLayout(c);
    ASSERT_FALSE(layout.ok()) << planted.words[0];
    EXPECT_EQ(layout.status().code(), StatusCode::kInvalidArgument);
    for (const std::string& word : planted.words) {
      EXPECT_THAT(layout.status().message(), HasSubstr(word));
    }
  }
}

TEST(CacheLayout, AcceptsThePoolThatJustCoversTopK) {
  ModelConfig c = Released();
  c.candidate_topk_blocks = 65;  // 64 * 8 + 1 rows
  EXPECT_TRUE(MakeCacheLayout(c).ok());
  c.index_topk = 514;
  EXPECT_FALSE(MakeCacheLayout(c).ok());
}

TEST(CacheLayout, RefusesBlocksThatSplitARow) {
  EXPECT_THAT(MakeCacheLayout(Released(), 127).status().message(),
              HasSubstr("block_size is 127; allowed: a multiple of every ratio, here 2"));
  EXPECT_THAT(MakeCacheLayout(Released(), 0).status().message(), HasSubstr("block_size is 0"));
  EXPECT_FALSE(MakeCacheLayout(Released(), 1 << 20).ok());
}

}  // namespace
}  // namespace emberkv
