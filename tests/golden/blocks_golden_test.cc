// Parts of the model against vectors from the official code: router and experts, MoE, compressor,
// Engram, output projection (golden README 3).
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "formats/row_codec.h"
#include "golden_data.h"
#include "linear/multiply.h"
#include "model/engram.h"
#include "model/global_rows.h"
#include "model/moe.h"

namespace emberkv {
namespace {

using golden::Compare;
using golden::File;
using golden::TinyModel;
using golden::WorstRowError;

// A step of `n` rows over one throw-away sequence.
struct OneSpan {
  explicit OneSpan(int64_t n, std::vector<int32_t> tokens_in = {}) : tokens(std::move(tokens_in)) {
    sequence.tokens = tokens.data();
    step.spans = {{&sequence, 0, n, false}};
    for (int64_t pos = 0; pos < n; ++pos) step.rows.push_back({0, pos});
  }

  std::vector<int32_t> tokens;
  ThreadPool pool{1};
  SequenceState sequence;
  Step step{&pool};
};

TEST(GoldenMoe, RouterChoosesAndWeighs) {
  const File f("ops/moe.safetensors");
  ModelConfig config;
  config.n_routed_experts = 12;
  config.num_experts_per_tok = 4;
  config.routed_scaling_factor = 1.5;
  const PackedMatrix gate = PackedMatrix::FromBf16(12, 96, f.Bytes("router.w"));
  const std::vector<float> x = f.Floats("router.x"), bias = f.Floats("router.bias");
  std::vector<float> logits(16 * 12);
  MultiplyHere(gate, x.data(), 96, 16, logits.data(), 12, Rounding::kNone);
  EXPECT_LE(Compare(logits, f.Floats("router.logits")).max, 1e-5);
  const std::vector<int64_t> ids = f.Ints("router.ids_by_biased_score");
  std::vector<float> weights;
  for (size_t r = 0; r < 16; ++r) {
    const Route route = RouteRow(&logits[r * 12], bias, config);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(route.experts[i], ids[r * 4 + i]) << r;  // 3 and 7 tie
    weights.insert(weights.end(), route.weights.begin(), route.weights.end());
  }
  EXPECT_LE(Compare(weights, f.Floats("router.weights")).max, 1e-5);
}

TEST(GoldenMoe, ExpertsClampAndWeighBeforeW2) {
  const File f("ops/moe.safetensors");
  ModelConfig config;
  config.hidden_size = 96;
  config.swiglu_limit = 10;
  const auto fp4 = [&](const std::string& w, int rows, int cols) {
    return PackedMatrix::FromFp4(rows, cols, f.Bytes(w), f.Bytes(w + "_scale"));
  };
  const auto fp8 = [&](const std::string& w, int rows, int cols) {
    return PackedMatrix::FromFp8(rows, cols, f.Bytes(w), f.Bytes(w + "_scale"));
  };
  for (const std::string kind : {"expert_fp4.", "expert_fp8."}) {
    const auto pack = [&](const char* w, int rows, int cols) {
      return kind == "expert_fp4." ? fp4(kind + w, rows, cols) : fp8(kind + w, rows, cols);
    };
    const ExpertWeights expert{pack("w1", 64, 96), pack("w2", 96, 64), pack("w3", 64, 96)};
    OneSpan one(8);
    Step::Scratch& s = one.step.scratch;
    const std::vector<float> weights = f.Floats(kind + "route_weight");
    for (bool weighted : {true, false}) {
      s.expert_in = f.Floats(kind + "x");
      RoundRows(RowFormat::kWindowKv, s.expert_in.data(), 96, 8, 96);
      RunExpert(expert, config, weighted ? weights.data() : nullptr, 8, &one.step);
      EXPECT_LE(WorstRowError(s.gate, f.Floats(kind + "g"), 64), 0.003);
      EXPECT_LE(WorstRowError(s.up, f.Floats(kind + "u"), 64), 0.003);
      EXPECT_LE(WorstRowError(s.expert_out,
                              f.Floats(kind + (weighted ? "out_weighted" : "out_unweighted")), 96),
                0.01);
    }
  }
}

// Weights of a tiny model's layer, packed again from its checkpoint.
ModelWeights TinyWeights(const TinyModel& tiny) {
  const std::string dir = std::string(EMBERKV_TEST_DATA) + "/golden/" + tiny.name;
  static std::vector<std::shared_ptr<const Checkpoint>> kept;  // weights point into it
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir, tiny.config);
  EXPECT_TRUE(checkpoint.ok());
  kept.push_back(std::make_shared<const Checkpoint>(std::move(checkpoint).value()));
  const nlohmann::json map = nlohmann::json::parse(*ReadTextFile(dir + "/token_map.json", 1 << 20));
  Result<ModelWeights> weights = LoadModelWeights(*kept.back(), tiny.config, tiny.layout,
                                                  map.get<std::vector<int32_t>>(), {});
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  return std::move(weights).value();
}

TEST(GoldenMoe, WholeLayer) {
  const File f("ops/moe_layer.safetensors");
  const TinyModel& tiny = golden::Tiny("tiny-random");
  const ModelWeights weights = TinyWeights(tiny);
  OneSpan one(20);
  one.step.scratch.x = f.Floats("x");
  RunMoe(weights.layers[3].moe, tiny.config, &one.step);
  EXPECT_LE(WorstRowError(one.step.scratch.y, f.Floats("y"), 128), 0.01);
  EXPECT_LE(WorstRowError(one.step.scratch.expert_out, f.Floats("shared"), 128), 0.01);
}

TEST(GoldenOutputProjection, GroupsTakeUnquantizedInput) {
  const File f("ops/output_projection.safetensors");
  const ModelWeights weights = TinyWeights(golden::Tiny("tiny-random"));
  const AttentionWeights& w = weights.layers[2].attn;
  const std::vector<float> o = f.Floats("o");
  std::vector<float> z(6 * 64), y(6 * 128);
  for (size_t g = 0; g < 2; ++g) {
    MultiplyHere(w.wo_a[g], o.data() + g * 128, 256, 6, z.data() + g * 32, 64, Rounding::kBf16);
  }
  const std::vector<float> want_z = f.Floats("z");
  for (size_t i = 0; i < z.size(); ++i) EXPECT_LE(golden::Bf16Distance(z[i], want_z[i]), 1);
  RoundRows(RowFormat::kWindowKv, z.data(), 64, 6, 64);
  MultiplyHere(w.wo_b, z.data(), 64, 6, y.data(), 128, Rounding::kBf16);
  EXPECT_LE(WorstRowError(y, f.Floats("y"), 128), 0.01);
}

TEST(GoldenCompressor, RowsAndTailsInOneStepAndTokenByToken) {
  const File f("ops/compressor.safetensors");
  ModelConfig config;
  config.hidden_size = 96;
  config.head_dim = 64;
  config.index_head_dim = 32;
  config.rms_norm_eps = 1e-20;
  const RopeTable rope(16, 160000, RopeScaling{16, 32, 1, 256});
  CacheLayout layout;
  layout.kv_row_bytes = 36;
  layout.key_row_bytes = 17;
  for (int ratio : {1, 2}) {
    const std::string at = "r" + std::to_string(ratio) + ".";
    CompressorWeights w;
    w.wkv = PackedMatrix::FromBf16(64, 96, f.Bytes(at + "wkv"));
    if (ratio == 2) w.wgate = PackedMatrix::FromBf16(64, 96, f.Bytes(at + "wgate"));
    w.norm = f.Floats(at + "norm");
    const std::vector<uint8_t> zeros(32 * 64 * 2);
    w.index_wk = PackedMatrix::FromBf16(32, 64, zeros.data());
    w.index_k_norm.assign(32, 1.0f);
    const KvSource source{2, ratio, 16, 0, 16 * 36, ratio == 2 ? 0 : -1};
    const std::vector<float> x = f.Floats(at + "x");
    for (int n : {1, 2, 7, 8}) {
      if (ratio == 1 && n % 2 == 0) continue;  // no such vectors
      for (int piece : {n, 1, 3}) {
        std::vector<uint8_t> page(16 * (36 + 17));
        uint8_t* pages[1] = {page.data()};
        std::vector<float> tail(2 * 64, 0.0f);
        for (int begin = 0; begin < n; begin += piece) {
          const int end = std::min(n, begin + piece);
          OneSpan one(0);
          one.sequence.pages = pages;
          one.sequence.writable_pages = pages;
          one.sequence.tails = tail.data();
          one.step.spans[0].begin = begin;
          one.step.spans[0].end = end;
          for (int pos = begin; pos < end; ++pos) one.step.rows.push_back({0, pos});
          one.step.scratch.x.assign(x.begin() + begin * 96, x.begin() + end * 96);
          const Status status = WriteGlobalRows(w, rope, source, config, layout, &one.step);
          ASSERT_TRUE(status.ok()) << status.ToString();
        }
        const std::string length = at + "S" + std::to_string(n) + ".";
        if (f.Has(length + "packed")) {
          const std::vector<uint8_t> want = f.Codes(length + "packed");
          size_t equal = 0;
          for (size_t i = 0; i < want.size(); ++i) equal += page[i] == want[i] ? 1 : 0;
          EXPECT_GE(static_cast<double>(equal), 0.99 * static_cast<double>(want.size())) << length;
        }
        if (f.Has(length + "carry_kv") && n % 2 == 1) {  // slot 0 of the golden tail is the open token
          const std::vector<float> k = f.Floats(length + "carry_kv"), g = f.Floats(length + "carry_score");
          EXPECT_LE(Compare({tail.begin(), tail.begin() + 64}, {k.begin(), k.begin() + 64}).max, 1e-5);
          EXPECT_LE(Compare({tail.begin() + 64, tail.end()}, {g.begin(), g.begin() + 64}).max, 1e-5);
        }
      }
    }
  }
}

nlohmann::json EngramConstants() {
  const std::string path = std::string(EMBERKV_TEST_DATA) + "/golden/ops/engram_constants.json";
  return nlohmann::json::parse(*ReadTextFile(path, 1 << 20));
}

TEST(GoldenEngram, ConstantsOfTheReleaseAndTheTinyModels) {
  const nlohmann::json constants = EngramConstants();
  const File f("ops/engram.safetensors");
  for (const std::string name : {"release", "tiny-random", "tiny-wide"}) {
    SCOPED_TRACE(name);
    const std::string data = EMBERKV_TEST_DATA;
    const Result<ModelConfig> config =
        LoadModelConfig(name == "release" ? data + "/configs/released.json" : data + "/golden/" + name);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    // The release's golden tokens are compressed ids already: the identity map.
    std::vector<int32_t> map(static_cast<size_t>(config->engram_compressed_vocab_size));
    for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<int32_t>(i);
    if (name != "release") {
      map = nlohmann::json::parse(*ReadTextFile(data + "/golden/" + name + "/token_map.json", 1 << 20))
                .get<std::vector<int32_t>>();
    }
    const Result<EngramHash> hash = EngramHash::Make(*config, map);
    ASSERT_TRUE(hash.ok()) << hash.status().ToString();
    const nlohmann::json& want = constants[name];
    for (size_t i = 0; i < hash->layers().size(); ++i) {
      const EngramLayerHash& layer = hash->layers()[i];
      EXPECT_EQ(layer.multipliers, want["multipliers"][i].get<std::vector<int64_t>>());
      EXPECT_EQ(layer.offsets, want["offsets"][i].get<std::vector<int64_t>>());
      std::vector<int64_t> primes;
      for (const nlohmann::json& ngram : want["primes"][i]) {
        for (const nlohmann::json& prime : ngram) primes.push_back(prime.get<int64_t>());
      }
      EXPECT_EQ(layer.primes, primes);
    }
    const std::vector<int64_t> ids = f.Ints(name + ".tokens");
    const std::vector<int32_t> tokens(ids.begin(), ids.end());
    const size_t columns = static_cast<size_t>(hash->num_columns());
    const auto rows = [&](size_t n) {
      std::vector<int64_t> out;
      for (size_t pos = 0; pos < n; ++pos) {
        for (size_t i = 0; i < hash->layers().size(); ++i) {
          out.resize(out.size() + columns);
          hash->Rows(static_cast<int>(i), tokens.data(), static_cast<int64_t>(pos), &out[out.size() - columns]);
        }
      }
      return out;
    };
    EXPECT_EQ(rows(tokens.size()), f.Ints(name + ".row_ids"));
    EXPECT_EQ(rows(1), f.Ints(name + ".len1"));
    EXPECT_EQ(rows(3), f.Ints(name + ".len3"));
  }
}

TEST(GoldenEngram, WrongTokenMapIsRefused) {
  const TinyModel& tiny = golden::Tiny("tiny-random");
  ModelConfig config = tiny.config;
  config.engram_num_embeddings[0] += 1;
  const Result<EngramHash> hash = EngramHash::Make(config, std::vector<int32_t>(512, 0));
  ASSERT_FALSE(hash.ok());
  EXPECT_NE(hash.status().message().find("engram_num_embeddings[0] is 661"), std::string::npos)
      << hash.status().message();
}

TEST(GoldenEngram, FoldsRowsIntoTheStreams) {
  const File f("ops/engram.safetensors");
  const TinyModel& tiny = golden::Tiny("tiny-random");
  const ModelWeights weights = TinyWeights(tiny);
  const std::string dir = std::string(EMBERKV_TEST_DATA) + "/golden/tiny-random";
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir, tiny.config);
  const std::vector<int64_t> ids = f.Ints("tiny-random.tokens");
  for (size_t i = 0; i < 2; ++i) {
    const std::string at = "block.L" + std::to_string(tiny.config.engram_layer_ids[i]) + ".";
    OneSpan one(24, {ids.begin(), ids.end()});
    one.step.stream = f.Floats("block.h_in");
    const EngramWeights& w = *weights.layers[static_cast<size_t>(tiny.config.engram_layer_ids[i])].engram;
    ASSERT_TRUE(ApplyEngram(w, *weights.engram_hash, checkpoint->engram_tables()[i], static_cast<int>(i),
                            tiny.config, &one.step).ok());
    EXPECT_LE(Compare(one.step.scratch.engram_kv, f.Floats(at + "wkv_out")).max, 0.02);
    EXPECT_LE(WorstRowError(one.step.stream, f.Floats(at + "h_out"), 4 * 128), 0.005);
  }
}

}  // namespace
}  // namespace emberkv
