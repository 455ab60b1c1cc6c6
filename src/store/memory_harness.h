// The harness of the contract suites for the memory store, alone or with another store around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/fake_clock.h"
#include "store/memory_store.h"
#include "store/store_contract.h"

namespace emberkv {

class MemoryHarness {
 public:
  static constexpr size_t kPayloadBytes = 1000;
  static constexpr uint64_t kBudgetBytes = 64 * 1024;
  static constexpr uint64_t kStoredPageBytes = 2024;

  MemoryHarness() : MemoryHarness([](auto store, const Clock*) { return store; }) {}

  KvStore& store() { return *store_; }
  FakeClock& clock() { return clock_; }

  void Damage(const BlockHash& key) {
    const bool is_there = memory_->DamageForTest(
        key, [](MemoryStore::StoredPage& page) { page.payload[page.payload.size() / 2] ^= 1; });
    EXPECT_TRUE(is_there);
  }

 protected:
  // `wrap` puts another store around the memory store.
  template <typename Wrap>
  explicit MemoryHarness(Wrap wrap) {
    const MemoryStoreOptions options = {.budget_bytes = kBudgetBytes,
                                        .retention = kContractRetention};
    auto memory = std::make_unique<MemoryStore>(options, &clock_);
    memory_ = memory.get();
    store_ = wrap(std::move(memory), &clock_);
  }

  FakeClock clock_;
  std::unique_ptr<KvStore> store_;
  MemoryStore* memory_ = nullptr;  // inside store_
};

}  // namespace emberkv
