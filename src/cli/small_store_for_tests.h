// A store in a folder of its own, with a clock that the test moves.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fake_clock.h"
#include "layout/identity.h"
#include "store/local_store.h"

namespace emberkv {

inline constexpr std::chrono::hours kTestRetention{72};

class SmallStore : public ::testing::Test {
 protected:
  SmallStore() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(::testing::TempDir()) /
           (std::string("emberkv_") + test->test_suite_name() + "_" + test->name());
    std::filesystem::remove_all(dir_);
    Reopen();
  }
  ~SmallStore() override {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }

  std::string dir() const { return dir_.string(); }

  void Reopen() {
    store_.reset();
    LocalStoreOptions options;
    options.directory = dir();
    options.budget_bytes = uint64_t{64} << 20;
    options.retention = kTestRetention;
    options.deadline_step = std::chrono::seconds(1);
    Result<std::unique_ptr<LocalStore>> store = LocalStore::Open(std::move(options), &clock_);
    if (!store.ok()) {
      ADD_FAILURE() << store.status().ToString();
      return;
    }
    store_ = std::move(store).value();
  }

  // Stores a page of 1,000 bytes and returns its key.
  BlockHash Put(const BlockHash& parent, Provenance provenance, std::span<const int32_t> tokens,
                const Digest& tenant = {}) {
    const BlockHash key = HashBlock(parent, provenance, tokens);
    const std::vector<uint8_t> payload(1000, uint8_t{0xa5});
    const PageRecord page{key, parent, provenance, tenant, tokens, payload};
    EXPECT_EQ(store_->Put({&page, 1}).front(), PutOutcome::kStored);
    return key;
  }

  // `count` pages of 128 tokens that continue each other.
  std::vector<BlockHash> PutChain(int count, const Digest& tenant = {}) {
    std::vector<BlockHash> keys;
    for (int i = 0; i < count; ++i) {
      const std::vector<int32_t> tokens(128, i);
      keys.push_back(Put(keys.empty() ? Sha256("root") : keys.back(), {}, tokens, tenant));
    }
    return keys;
  }

  FakeClock clock_;
  std::filesystem::path dir_;
  std::unique_ptr<LocalStore> store_;
};

}  // namespace emberkv
