#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "weights/test_files.h"

namespace emberkv {
namespace {

const char kTinyRandom[] = EMBERKV_TEST_DATA "/golden/tiny-random";

ModelConfig Config(const std::string& dir) {
  Result<ModelConfig> config = LoadModelConfig(dir);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : ModelConfig();
}

std::string FolderName(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  name = name.substr(name.rfind('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ShippedCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(ShippedCheckpoint, OpensAndServesEveryName) {
  const ModelConfig config = Config(GetParam());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(GetParam(), config);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const Result<Inventory> inventory = Inventory::Make(config);
  ASSERT_TRUE(inventory.ok());
  for (const TensorSpec& spec : inventory->tensors()) {
    const std::string matrix = spec.name.substr(0, spec.name.rfind('.'));
    if (spec.family == TensorFamily::kEngramTable || spec.dtype == DType::kF8E8M0) continue;
    switch (spec.dtype) {
      case DType::kF8E4M3:
        EXPECT_TRUE(checkpoint->Fp8(matrix).ok()) << spec.name;
        break;
      case DType::kI8:
        EXPECT_TRUE(checkpoint->Fp4(matrix).ok()) << spec.name;
        break;
      case DType::kBF16:
        EXPECT_TRUE(checkpoint->Bf16(spec.name).ok()) << spec.name;
        break;
      default:
        EXPECT_TRUE(checkpoint->F32(spec.name).ok()) << spec.name;
    }
  }
  const CheckpointSummary& summary = checkpoint->summary();
  int64_t unused = 0;
  for (int f = 0; f < kNumTensorFamilies; ++f) {
    const auto family = static_cast<TensorFamily>(f);
    if (IsUnused(family)) unused += summary.family(family).tensors;
  }
  EXPECT_EQ(summary.total.tensors, static_cast<int64_t>(inventory->tensors().size()) + unused);
  EXPECT_EQ(unused > 0, config.num_nextn_predict_layers > 0);
  EXPECT_EQ(checkpoint->engram_tables().size(), config.engram_layer_ids.size());
}

INSTANTIATE_TEST_SUITE_P(All, ShippedCheckpoint,
                         ::testing::Values(kTinyRandom, EMBERKV_TEST_DATA "/golden/tiny-wide",
                                           EMBERKV_SOURCE_DIR "/models/ember-tiny"),
                         FolderName);

TEST_P(ShippedCheckpoint, ReadsTheMatricesThatItMaps) {
  const ModelConfig config = Config(GetParam());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(GetParam(), config);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  std::vector<uint8_t> buffer;
  for (const char* name : {"layers.0.ffn.experts.0.w1", "layers.1.ffn.experts.2.w2"}) {
    checkpoint->ReadFp4Ahead(name);
    const Result<Fp4Matrix> read = checkpoint->ReadFp4(name, &buffer);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    const Result<Fp4Matrix> mapped = checkpoint->Fp4(name);
    ASSERT_TRUE(mapped.ok());
    EXPECT_EQ(read->rows, mapped->rows);
    EXPECT_EQ(read->cols, mapped->cols);
    const auto codes = static_cast<size_t>(read->rows * read->cols / 2), scales = codes / 16;
    EXPECT_EQ(std::memcmp(read->packed, mapped->packed, codes), 0);
    EXPECT_EQ(std::memcmp(read->scales, mapped->scales, scales), 0);
    checkpoint->Release("layers.");
    EXPECT_EQ(std::memcmp(read->packed, mapped->packed, codes), 0);  // views stay valid
  }
  EXPECT_FALSE(checkpoint->ReadFp4("layers.0.ffn.experts.0.w9", &buffer).ok());
}

class TinyCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = Config(kTinyRandom);
    Result<SafetensorsFile> file =
        SafetensorsFile::Open(std::string(kTinyRandom) + "/model.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    tensors_ = CopyTensors(*file);
  }

  TestTensor& Named(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const TestTensor& t) { return t.name == name; });
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TestTensor& t) { return t.name == name; });
  }

  // Layers in the second shard, the rest in the first, and an index that says so.
  void WriteShards() {
    std::vector<TestTensor> shards[2];
    for (const TestTensor& t : tensors_) {
      const int shard = t.name.rfind("layers.", 0) == 0 ? 1 : 0;
      shards[shard].push_back(t);
      index_["weight_map"][t.name] = kShards[shard];
    }
    for (int i = 0; i < 2; ++i) folder_.Write(kShards[i], SafetensorsBytes(shards[i]));
    WriteIndex();
  }
  void WriteIndex() { folder_.Write("model.safetensors.index.json", index_.dump()); }
  void WriteOneFile() { folder_.Write("model.safetensors", SafetensorsBytes(tensors_)); }

  std::string OpenError() {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(folder_.path(), config_);
    return checkpoint.ok() ? "opened" : checkpoint.status().ToString();
  }

  static constexpr const char* kShards[2] = {"model-00001-of-00002.safetensors",
                                             "model-00002-of-00002.safetensors"};
  const TestFolder folder_;
  ModelConfig config_;
  std::vector<TestTensor> tensors_;
  nlohmann::json index_;
};

#define EXPECT_HAS(text, part)                                         \
  do {                                                                 \
    const std::string text_ = (text);                                  \
    EXPECT_NE(text_.find(part), std::string::npos) << "in: " << text_; \
  } while (false)

TEST_F(TinyCheckpoint, ShardsGiveTheBytesOfTheOneFile) {
  WriteShards();
  Result<Checkpoint> opened = Checkpoint::Open(folder_.path(), config_);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Checkpoint checkpoint = std::move(*opened);  // views outlive the move
  EXPECT_EQ(checkpoint.summary().num_files, 2);

  const Result<Fp8Matrix> wq_b = checkpoint.Fp8("layers.2.attn.wq_b");
  ASSERT_TRUE(wq_b.ok());
  EXPECT_EQ(wq_b->rows, 256);
  EXPECT_EQ(wq_b->cols, 64);
  const auto same = [&](const uint8_t* bytes, const std::string& name) {
    return std::memcmp(bytes, Named(name).bytes.data(), Named(name).bytes.size()) == 0;
  };
  EXPECT_TRUE(same(wq_b->codes, "layers.2.attn.wq_b.weight"));
  EXPECT_TRUE(same(wq_b->scales, "layers.2.attn.wq_b.scale"));

  const Result<Fp4Matrix> w2 = checkpoint.Fp4("layers.9.ffn.experts.7.w2");
  ASSERT_TRUE(w2.ok());
  EXPECT_EQ(w2->rows, 128);
  EXPECT_EQ(w2->cols, 64);
  EXPECT_TRUE(same(w2->packed, "layers.9.ffn.experts.7.w2.weight"));
  EXPECT_TRUE(same(w2->scales, "layers.9.ffn.experts.7.w2.scale"));
}

TEST_F(TinyCheckpoint, FloatViewsReadUnalignedValues) {
  // A one-byte tensor of an unused family in front shifts everything behind it.
  tensors_.insert(tensors_.begin(), {"vision.pad", "U8", {1}, "x"});
  WriteOneFile();
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder_.path(), config_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();

  const Result<Bf16Tensor> norm = checkpoint->Bf16("layers.4.attn_norm.weight");
  ASSERT_TRUE(norm.ok());
  ASSERT_EQ(norm->shape, (std::vector<int64_t>{128}));
  const std::string& norm_bytes = Named("layers.4.attn_norm.weight").bytes;
  const std::vector<float> norm_values = norm->ToFloats();
  for (size_t i = 0; i < norm_values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, norm_bytes.data() + 2 * i, 2);
    EXPECT_EQ(norm_values[i], Bf16ToFloat(bits));
  }
  float part[3];
  norm->Read(5, part);
  EXPECT_EQ(part[2], norm_values[7]);

  const Result<F32Tensor> fn = checkpoint->F32("layers.4.hc_attn_fn");
  ASSERT_TRUE(fn.ok());
  EXPECT_EQ(fn->shape, (std::vector<int64_t>{24, 512}));
  const std::vector<float> fn_values = fn->ToFloats();
  EXPECT_EQ(std::memcmp(fn_values.data(), Named("layers.4.hc_attn_fn").bytes.data(),
                        fn_values.size() * sizeof(float)),
            0);
  fn->Read(512, part);
  EXPECT_EQ(part[0], fn_values[512]);
}

TEST_F(TinyCheckpoint, WrongKindOfViewIsAnInternalError) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(kTinyRandom, config_);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->Fp8("layers.0.ffn.experts.0.w1").status().code(), StatusCode::kInternal);
  EXPECT_EQ(checkpoint->Fp4("layers.0.attn.wq_a").status().code(), StatusCode::kInternal);
  EXPECT_EQ(checkpoint->Fp8("layers.1.engram.embed").status().code(), StatusCode::kInternal);
  EXPECT_EQ(checkpoint->Bf16("layers.0.hc_attn_fn").status().code(), StatusCode::kInternal);
  EXPECT_EQ(checkpoint->F32("no.such").status().code(), StatusCode::kInternal);
}

TEST_F(TinyCheckpoint, EngramRowsEqualAManualDecode) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(kTinyRandom, config_);
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_EQ(checkpoint->engram_tables().size(), 2u);
  const EngramTable& table = checkpoint->engram_tables()[1];
  EXPECT_EQ(table.layer(), 4);
  ASSERT_EQ(table.num_rows(), 864);
  ASSERT_EQ(table.head_dim(), 32);
  const std::string& codes = Named("layers.4.engram.embed.weight").bytes;
  const std::string& scales = Named("layers.4.engram.embed.scale").bytes;

  const int64_t ids[] = {863, 0, 17, 863};
  std::vector<float> rows(4 * 32);
  ASSERT_TRUE(table.ReadRows(ids, rows.data()).ok());
  bool any = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<size_t>(ids[i / 32]);
    const float expected = E4m3ToFloat(static_cast<uint8_t>(codes[row * 32 + i % 32])) *
                           E8m0ToFloat(static_cast<uint8_t>(scales[row]));
    EXPECT_EQ(rows[i], expected) << i;
    any = any || expected != 0;
  }
  EXPECT_TRUE(any);
}

TEST_F(TinyCheckpoint, EngramScalesArePerRowAndGroup) {
  const std::string wide = EMBERKV_TEST_DATA "/golden/tiny-wide";
  const Result<Checkpoint> checkpoint = Checkpoint::Open(wide, Config(wide));
  const Result<SafetensorsFile> file = SafetensorsFile::Open(wide + "/model.safetensors");
  ASSERT_TRUE(checkpoint.ok() && file.ok());
  const std::span<const uint8_t> codes = file->Find("layers.0.engram.embed.weight")->bytes;
  const std::span<const uint8_t> scales = file->Find("layers.0.engram.embed.scale")->bytes;
  const int64_t id = 321;
  float row[64];
  ASSERT_TRUE(checkpoint->engram_tables()[0].ReadRows({&id, 1}, row).ok());
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(row[i], E4m3ToFloat(codes[321 * 64 + i]) * E8m0ToFloat(scales[321 * 2 + i / 32]));
  }
}

TEST_F(TinyCheckpoint, EngramRowsOutsideTheTableAreRefused) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(kTinyRandom, config_);
  ASSERT_TRUE(checkpoint.ok());
  float row[32];
  for (const int64_t id : {int64_t{-1}, int64_t{864}, INT64_MAX, INT64_MIN}) {
    const Status status = checkpoint->engram_tables()[1].ReadRows({&id, 1}, row);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_HAS(status.message(), "layer 4: row " + std::to_string(id) + " is outside 0 to 863");
  }
}

TEST_F(TinyCheckpoint, MissingTensorIsNamed) {
  Remove("layers.3.ffn.experts.2.w1.scale");
  WriteOneFile();
  EXPECT_HAS(OpenError(), "(1 problem): missing tensor 'layers.3.ffn.experts.2.w1.scale'");
}

TEST_F(TinyCheckpoint, MisnamedTensorIsNamedWithASuggestion) {
  Named("layers.3.attn.wkv.weight").name = "layers.3.attn.wvk.weight";
  WriteOneFile();
  const std::string error = OpenError();
  EXPECT_HAS(error, "unknown tensor 'layers.3.attn.wvk.weight' in model.safetensors");
  EXPECT_HAS(error, "did you mean 'layers.3.attn.wkv.weight'");
  EXPECT_HAS(error, "missing tensor 'layers.3.attn.wkv.weight'");
}

TEST_F(TinyCheckpoint, UnknownTensorIsNamed) {
  tensors_.push_back({"lora.adapter", "U8", {2}, "xy"});
  WriteOneFile();
  EXPECT_HAS(OpenError(), "(1 problem): unknown tensor 'lora.adapter' in model.safetensors");
}

TEST_F(TinyCheckpoint, WrongTypeIsNamed) {
  Named("layers.0.ffn.gate.weight").dtype = "F16";
  WriteOneFile();
  EXPECT_HAS(OpenError(),
             "'layers.0.ffn.gate.weight' is F16 [8, 128]; the config demands BF16 [8, 128]");
}

TEST_F(TinyCheckpoint, WrongShapeIsNamed) {
  Named("layers.0.attn.wq_a.weight").shape = {128, 64};
  WriteOneFile();
  EXPECT_HAS(
      OpenError(),
      "'layers.0.attn.wq_a.weight' is F8_E4M3 [128, 64]; the config demands F8_E4M3 [64, 128]");
}

TEST_F(TinyCheckpoint, ManyProblemsAreCountedAndCut) {
  std::erase_if(tensors_, [](const TestTensor& t) { return t.name.rfind("layers.", 0) == 0; });
  WriteOneFile();
  const std::string error = OpenError();
  EXPECT_HAS(error, "more of this kind");
  EXPECT_LT(error.size(), 1000u);
}

TEST_F(TinyCheckpoint, OverlappingTensorsAreRefused) {
  const std::string text = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  folder_.Write("model.safetensors", RawSafetensors(text, "123456"));
  EXPECT_HAS(OpenError(), "model.safetensors: tensor 'b': data begins at 2, overlapping");
}

TEST_F(TinyCheckpoint, TruncatedShardIsRefused) {
  WriteShards();
  const std::string path = folder_.File(kShards[1]);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const std::string error = OpenError();
  EXPECT_HAS(error, kShards[1]);
  EXPECT_HAS(error, "truncated");
}

TEST_F(TinyCheckpoint, MissingShardIsNotFound) {
  WriteShards();
  std::filesystem::remove(folder_.File(kShards[1]));
  EXPECT_HAS(OpenError(), "not found: cannot open " + folder_.File(kShards[1]));
}

TEST_F(TinyCheckpoint, TensorInAnotherShardThanTheIndexSaysIsNamed) {
  WriteShards();
  index_["weight_map"]["head.weight"] = kShards[1];
  WriteIndex();
  EXPECT_HAS(OpenError(),
             "'head.weight' should be in model-00002-of-00002.safetensors and is in "
             "model-00001-of-00002.safetensors");
}

TEST_F(TinyCheckpoint, TensorOfTheIndexThatIsNowhereIsNamed) {
  WriteShards();
  index_["weight_map"]["ghost"] = kShards[1];
  WriteIndex();
  EXPECT_HAS(OpenError(), "'ghost' should be in model-00002-of-00002.safetensors and is nowhere");
}

TEST_F(TinyCheckpoint, TensorThatTheIndexOmitsIsNamed) {
  WriteShards();
  index_["weight_map"].erase("norm.weight");
  WriteIndex();
  EXPECT_HAS(OpenError(), "'norm.weight' in model-00001-of-00002.safetensors is not listed");
}

TEST_F(TinyCheckpoint, TensorInTwoShardsIsNamed) {
  WriteShards();
  folder_.Write(kShards[0], SafetensorsBytes(tensors_));
  EXPECT_HAS(OpenError(),
             "is in model-00001-of-00002.safetensors and in "
             "model-00002-of-00002.safetensors");
}

TEST_F(TinyCheckpoint, ShardNamesCannotLeaveTheFolder) {
  WriteShards();
  for (const char* name : {"../model.safetensors", "/etc/model.safetensors", "a/b.safetensors",
                           "..safetensors", ".safetensors", "model.bin", "", "a\\b.safetensors"}) {
    index_["weight_map"]["norm.weight"] = name;
    WriteIndex();
    EXPECT_HAS(OpenError(), "allowed: a plain file name ending in .safetensors");
  }
  index_["weight_map"]["norm.weight"] = 7;
  WriteIndex();
  EXPECT_HAS(OpenError(), "the shard of 'norm.weight' is not a string");
}

TEST_F(TinyCheckpoint, MalformedIndexIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not JSON"},
      {"{\"weight_map\":", "not JSON"},
      {"[]", "weight_map is missing"},
      {"{}", "weight_map is missing"},
      {"{\"weight_map\":[]}", "not an object"},
      {"{\"weight_map\":{}}", "names no tensor"},
  };
  WriteOneFile();
  for (const auto& [text, message] : cases) {
    folder_.Write("model.safetensors.index.json", text);
    EXPECT_HAS(OpenError(), message);
  }
}

TEST_F(TinyCheckpoint, FolderWithoutWeightsIsNotFound) {
  EXPECT_HAS(OpenError(), "has neither model.safetensors.index.json nor model.safetensors");
}

TEST_F(TinyCheckpoint, InconsistentConfigIsRefusedFirst) {
  config_.compress_ratios[2] = 3;
  const Result<Checkpoint> checkpoint = Checkpoint::Open(kTinyRandom, config_);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_HAS(checkpoint.status().message(), "compress_ratios");
}

TEST_F(TinyCheckpoint, UnusedFamiliesAreCountedApart) {
  tensors_.push_back({"image_start", "BF16", {2}, "abcd"});
  tensors_.push_back({"aligner.w1.weight", "BF16", {1, 1}, "ab"});
  WriteOneFile();
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder_.path(), config_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const CheckpointSummary& summary = checkpoint->summary();
  EXPECT_EQ(summary.family(TensorFamily::kImageTokens).bytes, 4u);
  EXPECT_EQ(summary.family(TensorFamily::kAligner).tensors, 1);
  EXPECT_EQ(summary.family(TensorFamily::kVision).tensors, 0);
  // One expert matrix has two values a byte; scales are not parameters.
  EXPECT_EQ(summary.family(TensorFamily::kRoutedExperts).parameters, 10 * 8 * 3 * 64 * 128);
  EXPECT_EQ(summary.dtype(DType::kF8E8M0).parameters, 0);
  EXPECT_EQ(summary.family(TensorFamily::kEngramTable).parameters, (660 + 864) * 32);
}

}  // namespace
}  // namespace emberkv
