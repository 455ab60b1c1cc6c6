// Opens checkpoints of released size that are holes, made by tools/make_sparse_checkpoint.py.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "weights/checkpoint.h"
#include "weights/test_files.h"

namespace emberkv {
namespace {

int64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atoll(line.c_str() + 6) * 1024;
  }
  return -1;
}

// The released layers, shards and tables at full size; fewer experts, so that the test is quick.
TEST(SparseCheckpoint, OpensAReleasedSizedSetWithLittleMemory) {
  const TestFolder folder;
  std::ifstream released(EMBERKV_TEST_DATA "/configs/released.json");
  nlohmann::json json = nlohmann::json::parse(released);
  json["text_config"]["n_routed_experts"] = 48;
  json["text_config"]["dspark_n_routed_experts"] = 16;
  folder.Write("config.json", json.dump());
  const std::string command = std::string(EMBERKV_PYTHON) +
                              " " EMBERKV_SOURCE_DIR "/tools/make_sparse_checkpoint.py " +
                              folder.File("config.json") + " " + folder.path();
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  Result<ModelConfig> config = LoadModelConfig(folder.path());
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const int64_t before = ResidentBytes();
  ASSERT_GT(before, 0);
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path(), *config);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const int64_t opened = ResidentBytes();

  const CheckpointSummary& summary = checkpoint->summary();
  EXPECT_EQ(summary.num_files, 48);
  // 336 experts of 6 tensors less in each of 40 layers, 112 less in each of 3 draft stages.
  EXPECT_EQ(summary.total.tensors, 96085 - 336 * 6 * 40 - 112 * 6 * 3);
  EXPECT_EQ(summary.family(TensorFamily::kDraftStages).tensors, 2401 - 112 * 6 * 3);
  EXPECT_EQ(summary.family(TensorFamily::kVision).tensors, 259);
  EXPECT_EQ(summary.family(TensorFamily::kAligner).tensors, 4);
  EXPECT_EQ(summary.family(TensorFamily::kImageTokens).tensors, 3);
  EXPECT_GT(summary.total.bytes, uint64_t{200} << 30);
  EXPECT_LT(opened - before, int64_t{100} << 20);

  // A row at the far end of a table of 98 GB: its page is read, not the table.
  const EngramTable& table = checkpoint->engram_tables()[1];
  std::vector<float> row(static_cast<size_t>(table.head_dim()), 1.0f);
  const int64_t last = table.num_rows() - 1;
  ASSERT_TRUE(table.ReadRows({&last, 1}, row.data()).ok());
  EXPECT_EQ(row, std::vector<float>(row.size(), 0.0f));
  EXPECT_LT(ResidentBytes() - opened, int64_t{8} << 20);
}

}  // namespace
}  // namespace emberkv
