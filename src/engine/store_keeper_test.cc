#include "engine/store_keeper.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace emberkv {
namespace {

constexpr size_t kPages = 40;
constexpr size_t kPageBytes = 8192;

class StoreKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) / "emberkv_store_keeper_test";
    std::filesystem::remove_all(directory_);
    LocalStoreOptions options;
    options.directory = directory_.string();
    options.budget_bytes = uint64_t{64} << 20;
    Result<std::unique_ptr<LocalStore>> store = LocalStore::Open(options, &clock_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::move(store).value();
    BlockHash parent;
    for (size_t i = 0; i < kPages; ++i) {
      const std::vector<int32_t> tokens(128, static_cast<int32_t>(i));
      const std::vector<uint8_t> payload(kPageBytes, static_cast<uint8_t>(0xa0 + i));
      const BlockHash key = HashBlock(parent, {}, tokens);
      const PageRecord page{key, parent, {}, {}, tokens, payload};
      ASSERT_EQ(store_->Put({&page, 1})[0], PutOutcome::kStored);
      parent = key;
    }
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Flips one byte of payload number `index` wherever it lies on disk.
  void DamagePage(size_t index) const {
    const std::string wanted(kPageBytes, static_cast<char>(0xa0 + index));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
      const size_t at = bytes.find(wanted);
      if (at == std::string::npos) continue;
      std::fstream out(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      out.seekp(static_cast<std::streamoff>(at + 100));
      out.put('x');
      return;
    }
    FAIL() << "the page is in no file";
  }

  SystemClock clock_;
  std::filesystem::path directory_;
  std::unique_ptr<LocalStore> store_;
};

TEST_F(StoreKeeperTest, RoundsReadEverythingInTurn) {
  StoreKeeper keeper(store_.get(), std::chrono::hours(1), 10 * kPageBytes);
  for (int round = 0; round < 40 && keeper.stats().full_scrubs == 0; ++round) keeper.RunRound();
  EXPECT_EQ(keeper.stats().full_scrubs, 1u);
  EXPECT_EQ(keeper.stats().scrubbed_pages, kPages);
  EXPECT_GT(keeper.stats().rounds, 2u);  // a round is bounded
  EXPECT_EQ(keeper.stats().corrupt, 0u);
}

TEST_F(StoreKeeperTest, ABadPageIsFoundBeforeItIsWanted) {
  DamagePage(17);
  StoreKeeper keeper(store_.get(), std::chrono::hours(1), kPages * kPageBytes * 4);
  keeper.RunRound();
  EXPECT_EQ(keeper.stats().corrupt, 1u);
  EXPECT_EQ(store_->Stats().quarantined, 1u);
}

}  // namespace
}  // namespace emberkv
