#include "store/memory_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/memory_harness.h"
#include "store/store_contract_test.h"
#include "store/store_model_test.h"
#include "store/test_pages.h"

namespace emberkv {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(Memory, StoreContract, MemoryHarness);

TEST(MemoryStore, AgreesWithTheModel) { RunStoreModel<MemoryHarness>(kModelTestTime); }

constexpr size_t kPayloadBytes = 200;

MemoryStoreOptions RoomFor(uint64_t num_pages) {
  return {.budget_bytes = num_pages * MemoryStore::StoredBytes(128, kPayloadBytes)};
}

TEST(MemoryStore, HoldsAsManyPagesAsTheBudgetSays) {
  FakeClock clock;
  MemoryStore store(RoomFor(3), &clock);
  EXPECT_THAT(PutPages(store, MakeTestPages(0, 4, kPayloadBytes)),
              ::testing::ElementsAre(PutOutcome::kStored, PutOutcome::kStored, PutOutcome::kStored,
                                     PutOutcome::kRefusedFull));
  EXPECT_EQ(store.Stats().used_bytes, store.Stats().budget_bytes);
}

TEST(MemoryStore, EvictsTheOldestDeadlineFirst) {
  FakeClock clock;
  MemoryStore store(RoomFor(3), &clock);
  const auto pages = MakeTestPages(0, 3, kPayloadBytes);
  for (const TestPage& page : pages) {
    PutPage(store, page);
    clock.Advance(1000);
  }
  EXPECT_EQ(ReadPage(store, pages[0]), GetOutcome::kHit);
  clock.Advance(10 * kRetentionUs);
  EXPECT_EQ(PutPage(store, MakeTestPage(9, kPayloadBytes)), PutOutcome::kStored);
  EXPECT_THAT(store.Contains(KeysOf(pages)), ::testing::ElementsAre(true, false, true));
}

// Whatever part of what lies in memory changes, the page is not served.
TEST(MemoryStore, Case_W07_NoFlippedBitIsEverServed) {
  FakeClock clock;
  MemoryStore store(RoomFor(2), &clock);
  const TestPage page = MakeTestPage(3, kPayloadBytes);
  using Stored = MemoryStore::StoredPage;
  std::vector<std::function<void(Stored&)>> flips;
  for (size_t i = 0; i < kPayloadBytes; ++i) {
    flips.push_back(
        [i](Stored& stored) { stored.payload[i] ^= static_cast<uint8_t>(1u << i % 8); });
  }
  for (size_t i = 0; i < 32; ++i) {
    flips.push_back([i](Stored& stored) { stored.checksum.bytes[i] ^= 1; });
    flips.push_back([i](Stored& stored) { stored.parent.bytes[i] ^= 0x10; });
  }
  for (size_t i = 0; i < page.tokens.size(); ++i) {
    flips.push_back([i](Stored& stored) { stored.tokens[i] ^= 1; });
  }
  flips.push_back([](Stored& stored) { stored.provenance.replayed_at ^= 128; });
  flips.push_back([](Stored& stored) { stored.payload.pop_back(); });
  flips.push_back([](Stored& stored) { stored.tokens.pop_back(); });

  for (size_t i = 0; i < flips.size(); ++i) {
    ASSERT_EQ(PutPage(store, page), PutOutcome::kStored);
    ASSERT_TRUE(store.DamageForTest(page.key, flips[i]));
    ASSERT_EQ(ReadPage(store, page), GetOutcome::kCorrupt) << "flip " << i;
  }
  EXPECT_EQ(store.Stats().get_corrupt, flips.size());
  EXPECT_EQ(store.Stats().used_bytes, 0u);
}

TEST(MemoryStore, RemembersABoundedNumberOfReasons) {
  FakeClock clock;
  MemoryStoreOptions options = RoomFor(1);
  options.remembered_misses = 2;
  MemoryStore store(options, &clock);
  const auto pages = MakeTestPages(0, 4, kPayloadBytes);
  PutPages(store, pages);  // one fits, three are refused
  using enum GetOutcome;
  EXPECT_THAT(ReadPages(store, pages),
              ::testing::ElementsAre(kHit, kNeverSeen, kRefused, kRefused));
}

TEST(MemoryStore, AQuarantinedPageStaysKnownAsSuchWhenItIsRefused) {
  FakeClock clock;
  MemoryStore store(RoomFor(1), &clock);
  const auto pages = MakeTestPages(0, 2, kPayloadBytes);
  PutPage(store, pages[0]);
  store.DamageForTest(pages[0].key, [](auto& stored) { stored.payload[0] ^= 1; });
  EXPECT_EQ(ReadPage(store, pages[0]), GetOutcome::kCorrupt);
  EXPECT_EQ(PutPage(store, pages[1]), PutOutcome::kStored);
  EXPECT_EQ(PutPage(store, pages[0]), PutOutcome::kRefusedFull);
  EXPECT_EQ(ReadPage(store, pages[0]), GetOutcome::kQuarantined);
}

TEST(KvStore, OutcomesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(PutOutcome::kFailed); ++i) {
    names.insert(std::string("put ") + PutOutcomeName(static_cast<PutOutcome>(i)));
  }
  for (int i = 0; i <= static_cast<int>(GetOutcome::kFailed); ++i) {
    names.insert(std::string("get ") + GetOutcomeName(static_cast<GetOutcome>(i)));
  }
  EXPECT_EQ(names.size(), 14u);
  EXPECT_FALSE(names.contains("put unknown") || names.contains("get unknown"));
}

}  // namespace
}  // namespace emberkv
