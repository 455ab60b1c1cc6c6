// The local store as the contract test wants it, in a directory of its own and with I/O that fails on demand.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/fake_clock.h"
#include "store/local_store.h"
#include "store/local_test_medium.h"
#include "store/store_contract.h"
#include "store/test_pages.h"

namespace emberkv {

class LocalHarness {
 public:
  static constexpr size_t kPayloadBytes = 16'000;  // records of 20 KiB
  static constexpr uint64_t kBudgetBytes = uint64_t{10} << 20;  // 30 segments of 3 records besides the index
  static constexpr uint64_t kStoredPageBytes = uint64_t{20} << 10;

  LocalHarness() : LocalHarness(kBudgetBytes, uint64_t{64} << 10) {}
  LocalHarness(uint64_t budget_bytes, uint64_t segment_bytes) {
    options_.budget_bytes = budget_bytes;
    options_.segment_bytes = segment_bytes;
    Open();
  }

  KvStore& store() { return *store_; }
  LocalStore& local() { return *store_; }
  FakeClock& clock() { return clock_; }
  FaultySegmentIo& io() { return *io_; }
  const std::string& directory() const { return directory_.path(); }
  LocalStoreOptions& options() { return options_; }

  void Close() { store_.reset(); }
  void Open() {
    options_.directory = directory_.path();
    options_.io = io_;
    auto store = LocalStore::Open(options_, &clock_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::move(store).value();
  }
  void Reopen(Reboot reboot) {
    Close();
    if (reboot == Reboot::kYes) clock_.Reboot(0);
    Open();
  }

  PageEntry EntryOf(const BlockHash& key) {
    const auto pages = store_->List({}, 1 << 20);
    EXPECT_TRUE(pages.ok());
    for (const auto& [other, entry] : *pages) {
      if (other == key) return entry;
    }
    ADD_FAILURE() << "not in the index";
    return {};
  }
  void Damage(const BlockHash& key) {
    const PageEntry entry = EntryOf(key);
    StoredBytes(directory(), entry.place).Flip(RecordHeadBytes(entry.num_tokens) + entry.payload_bytes / 2);
  }

 private:
  TemporaryDirectory directory_;
  FakeClock clock_;
  const std::shared_ptr<FaultySegmentIo> io_ = std::make_shared<FaultySegmentIo>();
  LocalStoreOptions options_{.retention = kContractRetention, .max_page_bytes = uint64_t{1} << 20};
  std::unique_ptr<LocalStore> store_;
};

}  // namespace emberkv
