// Routed experts that do not fit in memory give the bits of packed ones, and say what is wrong with their
// files.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/mapped_file.h"
#include "golden_data.h"
#include "model/streamed_experts.h"
#include "weights/test_files.h"

namespace emberkv {
namespace {

using golden::Sequence;
using golden::TinyModel;
using ::testing::HasSubstr;

constexpr int64_t kLength = 200;

std::string DirOf(const std::string& name) { return std::string(EMBERKV_TEST_DATA) + "/golden/" + name; }

std::shared_ptr<const Checkpoint> OpenIn(const std::string& dir, const ModelConfig& config) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir, config);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  return std::make_shared<const Checkpoint>(std::move(checkpoint).value());
}

Result<std::unique_ptr<Model>> LoadFrom(const std::string& dir, const TinyModel& tiny,
                                        const LoadOptions& options) {
  const Result<std::string> map = ReadTextFile(DirOf(tiny.name) + "/token_map.json", 1 << 20);
  return Model::Load(OpenIn(dir, tiny.config), tiny.config, tiny.layout,
                     nlohmann::json::parse(*map).get<std::vector<int32_t>>(), options);
}

// Memory for all other weights and `experts` routed ones.
LoadOptions MemoryFor(const TinyModel& tiny, uint64_t experts) {
  LoadOptions options;
  options.weight_memory_bytes = tiny.model->weight_bytes() - tiny.model->expert_stats().total_bytes +
                                experts * RoutedExpertBytes(tiny.config);
  return options;
}

uint64_t NumExperts(const TinyModel& tiny) {
  return static_cast<uint64_t>(tiny.config.n_routed_experts * tiny.layout.num_layers());
}

struct Outcome {
  std::vector<float> logits;
  std::vector<uint8_t> pages, windows;
  std::vector<float> tails;

  bool operator==(const Outcome&) const = default;
};

Outcome Prefill(const TinyModel& tiny, const Model& model, int64_t chunk, int threads) {
  Sequence sequence(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + kLength});
  ThreadPool pool(threads);
  std::vector<float> logits = golden::Run(model, &sequence, 0, kLength, chunk, &pool);
  return {std::move(logits), sequence.AllPages(), sequence.windows(), sequence.tails()};
}

class StreamedModel : public ::testing::TestWithParam<const char*> {};

TEST_P(StreamedModel, GivesTheBitsOfAPackedOneWhateverIsKept) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  const Outcome want = Prefill(tiny, *tiny.model, kLength, 1);
  const uint64_t in_use = StreamedExperts::kTakenAtOnce;
  for (const uint64_t experts : {uint64_t{0}, in_use + 1, in_use + 5, NumExperts(tiny) - 1}) {
    const auto model = LoadFrom(DirOf(tiny.name), tiny, MemoryFor(tiny, experts));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    for (const int threads : {1, 2}) {
      for (const int64_t chunk : {int64_t{1}, int64_t{7}, kLength}) {
        EXPECT_EQ(Prefill(tiny, **model, chunk, threads), want)
            << "memory for " << experts << ", chunk " << chunk << ", threads " << threads;
      }
    }
    const ExpertStats stats = (*model)->expert_stats();
    EXPECT_TRUE(stats.is_streamed);
    EXPECT_GT(stats.reads, 0u);
    // Layers take turns: a few kept experts are dropped before their layer comes again.
    EXPECT_EQ(stats.reads < stats.uses, experts == NumExperts(tiny) - 1);
    EXPECT_LE(stats.kept_bytes, (std::max(experts, in_use) - in_use) * RoutedExpertBytes(tiny.config));
    EXPECT_EQ(stats.kept_bytes > 0, experts > in_use);
  }
}

TEST_P(StreamedModel, IsPackedAsSoonAsAllFits) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  LoadOptions options = MemoryFor(tiny, NumExperts(tiny));
  const auto packed = LoadFrom(DirOf(tiny.name), tiny, options);
  ASSERT_TRUE(packed.ok());
  EXPECT_FALSE((*packed)->expert_stats().is_streamed);
  EXPECT_EQ((*packed)->weight_bytes(), options.weight_memory_bytes);
  --options.weight_memory_bytes;
  const auto streamed = LoadFrom(DirOf(tiny.name), tiny, options);
  ASSERT_TRUE(streamed.ok());
  EXPECT_TRUE((*streamed)->expert_stats().is_streamed);
  EXPECT_LT((*streamed)->weight_bytes(), options.weight_memory_bytes);
}

INSTANTIATE_TEST_SUITE_P(Golden, StreamedModel, ::testing::Values("tiny-random", "tiny-wide"));

TEST(StreamedModelThreads, ShareTheExpertsThatAreKept) {
  const TinyModel& tiny = golden::Tiny("tiny-wide");
  const Outcome want = Prefill(tiny, *tiny.model, kLength, 1);
  const auto model = LoadFrom(DirOf(tiny.name), tiny, MemoryFor(tiny, StreamedExperts::kTakenAtOnce + 2));
  ASSERT_TRUE(model.ok());
  Outcome got[2];
  {
    const std::jthread one([&] { got[0] = Prefill(tiny, **model, 64, 1); });
    const std::jthread two([&] { got[1] = Prefill(tiny, **model, 32, 2); });
  }
  EXPECT_EQ(got[0], want);
  EXPECT_EQ(got[1], want);
}

TEST(StreamedExperts, KeepsThoseUsedLast) {
  const TinyModel& tiny = golden::Tiny("tiny-random");
  const auto checkpoint = OpenIn(DirOf(tiny.name), tiny.config);
  ThreadPool pool(2);
  StreamedExperts experts(*checkpoint, tiny.config,
                          (StreamedExperts::kTakenAtOnce + 2) * RoutedExpertBytes(tiny.config));
  const auto take = [&](std::vector<int> ids) {
    auto taken = experts.Take(1, ids, &pool);
    EXPECT_TRUE(taken.ok()) << taken.status().ToString();
    return std::move(taken).value();
  };
  const auto reads = [&] { return experts.stats().reads; };
  const auto first = take({0, 1});
  EXPECT_EQ(reads(), 2u);
  EXPECT_EQ(take({0})[0], first[0]);
  EXPECT_EQ(reads(), 2u);
  const auto mixed = take({0, 2});  // 1 was used least lately
  EXPECT_EQ(mixed[0], first[0]);
  EXPECT_EQ(reads(), 3u);
  EXPECT_NE(take({1})[0], first[1]);
  EXPECT_EQ(reads(), 4u);
  EXPECT_EQ(experts.stats().kept_bytes, 2 * RoutedExpertBytes(tiny.config));
  EXPECT_EQ(first[0]->bytes(), RoutedExpertBytes(tiny.config));  // taken ones outlive their being dropped
}

// A copy of a tiny checkpoint that a test may damage.
class ExpertFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy_file(DirOf(tiny_.name) + "/model.safetensors", file_);
    const Result<SafetensorsFile> file = SafetensorsFile::Open(file_);
    ASSERT_TRUE(file.ok());
    first_expert_ = file->Find("layers.0.ffn.experts.0.w1.weight")->file_offset;
    ASSERT_LT(file->Find("embed.weight")->file_offset, first_expert_);
    scale_ = file->Find("layers.2.ffn.experts.1.w3.scale")->file_offset;
  }

  const TinyModel& tiny_ = golden::Tiny("tiny-random");
  const TestFolder folder_;
  const std::string file_ = folder_.File("model.safetensors");
  uint64_t first_expert_ = 0;  // where the first expert's bytes begin; embeddings lie before it
  uint64_t scale_ = 0;
};

TEST_F(ExpertFile, ACutFileIsNamedWithTheTensorAndServesAgainWhenItIsWhole) {
  const auto model = LoadFrom(folder_.path(), tiny_, MemoryFor(tiny_, 0));
  ASSERT_TRUE(model.ok());
  std::filesystem::resize_file(file_, first_expert_);
  Sequence sequence(tiny_, {tiny_.tokens.begin(), tiny_.tokens.begin() + kLength});
  ThreadPool pool(2);
  Step step(&pool);
  step.spans = {{sequence.state(), 0, kLength, true}};
  const Status status = (*model)->Forward(&step);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("layers.0.ffn.experts."));
  EXPECT_THAT(status.message(), HasSubstr(file_));

  std::ifstream whole(DirOf(tiny_.name) + "/model.safetensors", std::ios::binary);
  std::ofstream(file_, std::ios::binary | std::ios::in | std::ios::out) << whole.rdbuf();
  EXPECT_EQ(Prefill(tiny_, **model, 64, 2), Prefill(tiny_, *tiny_.model, 64, 2));
}

TEST_F(ExpertFile, ARemovedFileIsReadOn) {
  const auto model = LoadFrom(folder_.path(), tiny_, MemoryFor(tiny_, 0));
  ASSERT_TRUE(model.ok());
  std::filesystem::remove(file_);
  EXPECT_EQ(Prefill(tiny_, **model, 64, 2), Prefill(tiny_, *tiny_.model, 64, 2));
}

TEST_F(ExpertFile, AScaleThatIsNoNumberIsRefusedOnBothPaths) {
  {
    std::fstream out(file_, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(scale_));
    out.put('\xff');
  }
  const auto packed = LoadFrom(folder_.path(), tiny_, {});
  ASSERT_FALSE(packed.ok());
  EXPECT_THAT(packed.status().message(), HasSubstr("layers.2.ffn.experts.1.w3 holds a NaN"));
  const auto checkpoint = OpenIn(folder_.path(), tiny_.config);
  ThreadPool pool(1);
  StreamedExperts experts(*checkpoint, tiny_.config, 0);
  EXPECT_TRUE(experts.Take(2, std::vector<int>{0}, &pool).ok());
  EXPECT_EQ(experts.Take(2, std::vector<int>{1}, &pool).status().message(), packed.status().message());
}

// Of the process's mappings of a file.
int64_t ResidentBytesOf(const std::string& file) {
  std::ifstream maps("/proc/self/smaps");
  int64_t bytes = 0;
  bool is_ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) is_ours = line.ends_with(file);  // a range of addresses
    if (is_ours && line.starts_with("Rss:")) bytes += std::atoll(line.c_str() + 4) * 1024;
  }
  return bytes;
}

TEST_F(ExpertFile, AFileThatWasPackedDoesNotStayResident) {
  const auto model = LoadFrom(folder_.path(), tiny_, {});
  ASSERT_TRUE(model.ok());
  const int64_t resident = ResidentBytesOf(file_);
  EXPECT_GT(resident, 0);  // the header was parsed
  EXPECT_LT(resident, static_cast<int64_t>(std::filesystem::file_size(file_) / 4));
}

}  // namespace
}  // namespace emberkv
