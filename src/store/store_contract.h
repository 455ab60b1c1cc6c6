// The common ground of the contract suites (store/store_contract_test.h): the store under test, and
// steps that most tests take.
//
// A harness opens an empty store when it is constructed and offers:
//
//   static constexpr uint64_t kBudgetBytes;  // of that store
//   static constexpr size_t kPayloadBytes;   // of the pages; the budget holds 24 to 2,000 of them
//   static constexpr uint64_t kStoredPageBytes;  // what such a page takes of its tenant's limit
//   KvStore& store();
//   FakeClock& clock();                  // the store's; its retention is kContractRetention
//   void Damage(const BlockHash& key);   // spoils a stored page: its next read fails verification
//   void Reopen(Reboot);                 // durable stores only: closes the store and opens what
//   lies
//                                        // on the medium; after a reboot under a new boot id
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fake_clock.h"
#include "store/kv_store.h"
#include "store/test_pages.h"

namespace emberkv {

// Whether the machine starts anew between closing a store and opening it again.
enum class Reboot { kNo, kYes };

inline constexpr std::chrono::microseconds kContractRetention = std::chrono::hours(72);
inline constexpr int64_t kRetentionUs = kContractRetention.count();
inline constexpr int64_t kTenDaysUs = std::chrono::microseconds(std::chrono::hours(240)).count();

inline std::vector<PutOutcome> PutPagesWithin(KvStore& store, std::span<const TestPage> pages,
                                              const StoreLimits& limits) {
  std::vector<PageRecord> records;
  for (const TestPage& page : pages) {
    records.push_back(page.Record());
    records.back().limits = limits;
  }
  return store.Put(records);
}

// Nothing, if the tenant has nothing.
inline TenantSum SumOf(KvStore& store, uint64_t tenant) {
  TenantSum found;
  for (const TenantSum& sum : store.Stats().tenants) {
    if (sum.tenant != TestTenant(tenant)) continue;
    EXPECT_EQ(found.pages, 0u) << "told twice";
    EXPECT_GT(sum.pages, 0u);
    found = sum;
  }
  return found;
}

template <typename Harness>
class StoreContract : public ::testing::Test {
 protected:
  static constexpr size_t kBatch = 8;

  KvStore& store() { return harness_.store(); }
  FakeClock& clock() { return harness_.clock(); }

  TestPage NewPage(uint64_t tenant = 0) {
    return MakeTestPage(next_page_++, Harness::kPayloadBytes, tenant);
  }

  std::vector<TestPage> NewPages(size_t count, uint64_t tenant = 0) {
    std::vector<TestPage> pages;
    for (size_t i = 0; i < count; ++i) pages.push_back(NewPage(tenant));
    return pages;
  }

  // `count` new pages that the store has taken.
  std::vector<TestPage> StoreNewPages(size_t count, uint64_t tenant = 0) {
    std::vector<TestPage> pages = NewPages(count, tenant);
    EXPECT_THAT(PutPages(store(), pages), ::testing::Each(PutOutcome::kStored));
    return pages;
  }

  // Puts new pages until one is refused; what was stored, and what was not.
  struct Filling {
    std::vector<TestPage> stored;
    std::vector<TestPage> refused;
  };
  Filling FillUp(uint64_t tenant = 0) {
    Filling filling;
    const size_t limit = Harness::kBudgetBytes / Harness::kPayloadBytes + kBatch;
    while (filling.refused.empty() && filling.stored.size() < limit) {
      const std::vector<TestPage> pages = NewPages(kBatch, tenant);
      const std::vector<PutOutcome> outcomes = PutPages(store(), pages);
      for (size_t i = 0; i < pages.size(); ++i) {
        const bool is_stored = outcomes[i] == PutOutcome::kStored;
        if (!is_stored) {
          EXPECT_EQ(outcomes[i], PutOutcome::kRefusedFull);
        }
        (is_stored ? filling.stored : filling.refused).push_back(pages[i]);
      }
    }
    EXPECT_FALSE(filling.refused.empty()) << "the budget has no end";
    EXPECT_GE(filling.stored.size(), 2 * kBatch)
        << "the harness's budget is too small for the suite";
    return filling;
  }

  static StoreLimits LimitOfPages(uint64_t count) { return {.max_bytes = count * Harness::kStoredPageBytes}; }

  void ExpectAllHit(std::span<const TestPage> pages) {
    EXPECT_THAT(ReadPages(store(), pages), ::testing::Each(GetOutcome::kHit));
  }

  void ExpectNoPromiseBroken() { EXPECT_EQ(store().Stats().evicted_before_deadline, 0u); }

  Harness harness_;
  uint64_t next_page_ = 1;
};

}  // namespace emberkv
