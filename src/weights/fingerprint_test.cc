#include "weights/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "weights/test_files.h"

namespace emberkv {
namespace {

const char kTinyRandom[] = EMBERKV_TEST_DATA "/golden/tiny-random";
const char kTinyWide[] = EMBERKV_TEST_DATA "/golden/tiny-wide";
constexpr size_t kPieceBytes = 4096;

// The expected digests of the golden test come from this program, written from fingerprint.h and
// the encoding in layout/identity.h; its argument is the folder of tiny-random:
//
//   import hashlib, json, struct, sys
//   def F(b): return struct.pack("<Q", len(b)) + b
//   def H(*f): return hashlib.sha256(b"".join(f)).digest()
//   def pieces(size):
//       if size <= 4 * 4096: return [(0, size)]
//       n, last = 3 + size // (64 << 20), size - 4096
//       return [(last // n * i + last % n * i // n, 4096) for i in range(n + 1)]
//   def sample(file):
//       begin = 8 + struct.unpack("<Q", file[:8])[0]
//       header = json.loads(file[8:begin])
//       header.pop("__metadata__")
//       parts = [F(b"emberkv.shard_sample.1"), F(struct.pack("<Q", len(file))), F(file[:begin])]
//       for b, e in sorted(t["data_offsets"] for t in header.values()):
//           parts += [file[begin + b + at : begin + b + at + n] for at, n in pieces(e - b)]
//       return H(*parts)
//   config = open(sys.argv[1] + "/config.json", "rb").read()
//   file = open(sys.argv[1] + "/model.safetensors", "rb").read()
//   print(H(F(b"emberkv.model.1"), F(config), F(sample(file))).hex())
//   print(H(F(b"emberkv.full_model.1"), F(config), F(hashlib.sha256(file).digest())).hex())

struct Opened {
  Checkpoint checkpoint;
  std::string config_text;
};

Result<Opened> Open(const std::string& dir) {
  EMBERKV_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(dir));
  EMBERKV_ASSIGN_OR_RETURN(std::string text, ReadTextFile(dir + "/config.json", 1 << 20));
  EMBERKV_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(dir, config));
  return Opened{std::move(checkpoint), std::move(text)};
}

Digest Sampled(const std::string& dir, int threads = 1) {
  const Result<Opened> opened = Open(dir);
  EXPECT_TRUE(opened.ok()) << opened.status().ToString();
  if (!opened.ok()) return {};
  ThreadPool pool(threads);
  return ModelFingerprint(opened->checkpoint, opened->config_text, pool);
}

Digest Full(const std::string& dir, int threads = 1) {
  const Result<Opened> opened = Open(dir);
  EXPECT_TRUE(opened.ok()) << opened.status().ToString();
  if (!opened.ok()) return {};
  ThreadPool pool(threads);
  return FullFingerprint(opened->checkpoint, opened->config_text, pool);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A copy of tiny-random that a test may damage.
class ModelCopy : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = ReadAll(std::string(kTinyRandom) + "/config.json");
    model_ = ReadAll(std::string(kTinyRandom) + "/model.safetensors");
    ASSERT_FALSE(model_.empty());
    folder_.Write("config.json", config_);
    folder_.Write("model.safetensors", model_);
  }

  void Flip(uint64_t at) {
    std::fstream file(folder_.File("model.safetensors"),
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    model_[at] = static_cast<char>(model_[at] ^ 1);
    file.put(model_[at]);
    ASSERT_TRUE(file.good());
  }

  const TestFolder folder_;
  std::string config_;
  std::string model_;
};

TEST(Fingerprint, Case_I05_IsThatOfTheGoldenVectors) {
  EXPECT_EQ(DigestText(Sampled(kTinyRandom)),
            "8f3c58cdc04d88350718ea852ae9e9a43f7eade6014feab4b2ef925ac3e21adb");
  EXPECT_EQ(DigestText(Full(kTinyRandom)),
            "bd12d174b9a63bc97d3ba76d906e431ab1aa1f321deeba5b8e759bad22132705");
}

TEST(Fingerprint, Case_I01_OtherModelsDiffer) {
  EXPECT_NE(Sampled(kTinyRandom), Sampled(kTinyWide));
  EXPECT_NE(Full(kTinyRandom), Full(kTinyWide));
}

TEST_F(ModelCopy, ACopyElsewhereAndLaterHasTheSameFingerprint) {
  EXPECT_EQ(Sampled(folder_.path()), Sampled(kTinyRandom));
  EXPECT_EQ(Full(folder_.path()), Full(kTinyRandom));
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1000);
  std::filesystem::last_write_time(folder_.File("model.safetensors"), old);
  EXPECT_EQ(Sampled(folder_.path()), Sampled(kTinyRandom));
}

TEST_F(ModelCopy, Case_I02_NewWeightsUnderTheSamePathDiffer) {
  const Digest before = Sampled(folder_.path());
  const Result<Opened> opened = Open(folder_.path());
  ASSERT_TRUE(opened.ok());
  std::set<Digest> seen = {before};
  int flips = 0;
  // Ends of tensors, and the middle of those that are read whole.
  const std::vector<TensorView>& tensors = opened->checkpoint.files()[0].tensors();
  for (size_t i = 0; i < tensors.size(); i += 9) {
    const uint64_t begin = tensors[i].file_offset;
    const uint64_t size = tensors[i].bytes.size();
    std::set<uint64_t> places = {begin, begin + size - 1};
    if (size <= 4 * kPieceBytes) places.insert(begin + size / 2);
    for (const uint64_t at : places) {
      Flip(at);
      EXPECT_TRUE(seen.insert(Sampled(folder_.path())).second) << tensors[i].name << " " << at;
      Flip(at);
      ++flips;
    }
  }
  EXPECT_GT(flips, 200);
  EXPECT_EQ(Sampled(folder_.path()), before);
}

TEST_F(ModelCopy, LargeTensorsAreSampledAtBothEndsAndBetween) {
  const Result<Opened> opened = Open(folder_.path());
  ASSERT_TRUE(opened.ok());
  const TensorView* embed = opened->checkpoint.files()[0].Find("embed.weight");
  ASSERT_NE(embed, nullptr);
  const uint64_t begin = embed->file_offset;
  const uint64_t size = embed->bytes.size();
  ASSERT_EQ(size, 131072u);
  const Digest before = Sampled(folder_.path());
  const Digest before_full = Full(folder_.path());
  const auto flip_changes = [&](uint64_t at) {
    Flip(begin + at);
    const bool changes = Sampled(folder_.path()) != before;
    EXPECT_NE(Full(folder_.path()), before_full);
    Flip(begin + at);
    return changes;
  };
  const uint64_t second = (size - kPieceBytes) / 3;
  for (const uint64_t at : {uint64_t{0}, kPieceBytes - 1, second, second + kPieceBytes - 1,
                            2 * second, size - kPieceBytes, size - 1}) {
    EXPECT_TRUE(flip_changes(at)) << at;
  }
  // Between the pieces only the full fingerprint looks.
  for (const uint64_t at :
       {uint64_t{kPieceBytes}, second - 1, second + kPieceBytes, size - kPieceBytes - 1}) {
    EXPECT_FALSE(flip_changes(at)) << at;
  }
}

TEST_F(ModelCopy, HeaderAndConfigCount) {
  std::set<Digest> sampled = {Sampled(folder_.path())};
  std::set<Digest> full = {Full(folder_.path())};
  const size_t format = model_.find("\"pt\"");
  ASSERT_NE(format, std::string::npos);
  Flip(format + 1);
  EXPECT_TRUE(sampled.insert(Sampled(folder_.path())).second);
  EXPECT_TRUE(full.insert(Full(folder_.path())).second);
  Flip(format + 1);
  // A space says nothing, but what is not the same text is not taken for the same model.
  folder_.Write("config.json", config_ + " ");
  EXPECT_TRUE(sampled.insert(Sampled(folder_.path())).second);
  EXPECT_TRUE(full.insert(Full(folder_.path())).second);
}

TEST_F(ModelCopy, ShardsCountInTheirOrderWhateverTheThreads) {
  const Result<SafetensorsFile> file = SafetensorsFile::Open(folder_.File("model.safetensors"));
  ASSERT_TRUE(file.ok());
  const std::vector<TestTensor> tensors = CopyTensors(*file);
  std::vector<TestTensor> shards[5];
  nlohmann::json index;
  for (size_t i = 0; i < tensors.size(); ++i) {
    shards[i % 5].push_back(tensors[i]);
    index["weight_map"][tensors[i].name] = "shard-" + std::to_string(i % 5) + ".safetensors";
  }
  for (int i = 0; i < 5; ++i) {
    folder_.Write("shard-" + std::to_string(i) + ".safetensors", SafetensorsBytes(shards[i]));
  }
  folder_.Write("model.safetensors.index.json", index.dump());
  const Digest sampled = Sampled(folder_.path());
  const Digest full = Full(folder_.path());
  EXPECT_NE(sampled, Sampled(kTinyRandom));
  for (const int threads : {2, 4}) {
    EXPECT_EQ(Sampled(folder_.path(), threads), sampled);
    EXPECT_EQ(Full(folder_.path(), threads), full);
  }
}

TEST_F(ModelCopy, FullFingerprintSeesAnyFlippedByte) {
  const Digest before = Full(folder_.path());
  const Result<Opened> opened = Open(folder_.path());
  ASSERT_TRUE(opened.ok());
  const uint64_t data = opened->checkpoint.files()[0].tensors().front().file_offset;
  for (uint64_t at = data; at < model_.size(); at += 16411) {
    Flip(at);
    EXPECT_NE(Full(folder_.path()), before) << at;
    Flip(at);
  }
  EXPECT_EQ(Full(folder_.path()), before);
}

TEST_F(ModelCopy, ProgressRisesToTheTotal) {
  const Result<Opened> opened = Open(folder_.path());
  ASSERT_TRUE(opened.ok());
  ThreadPool pool(2);
  std::vector<uint64_t> seen;
  FullFingerprint(opened->checkpoint, opened->config_text, pool,
                  [&](uint64_t done, uint64_t total) {
                    EXPECT_EQ(total, model_.size());
                    seen.push_back(done);
                  });
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), model_.size());
}

}  // namespace
}  // namespace emberkv
