#include "cache/page_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "cache_fixture.h"
#include "store/fault_injection_store.h"
#include "window/window_pool.h"

namespace emberkv {
namespace {

constexpr uint64_t kLargeBudget = 1 << 24;
constexpr auto kRetention = std::chrono::hours(72);
constexpr int64_t kHourUs = 3'600'000'000;

class PageCacheTest : public ::testing::Test {
 protected:
  void Make(size_t pool_pages, uint64_t store_bytes = kLargeBudget,
            const PageCacheOptions& options = {}) {
    store_.emplace(MemoryStoreOptions{.budget_bytes = store_bytes, .retention = kRetention},
                   &clock_);
    cache_.emplace(MakePool(pool_pages), &*store_, options);
  }
  void MakeWithoutStore(size_t pool_pages) { cache_.emplace(MakePool(pool_pages), nullptr); }

  // Seals the whole prompt, lets go of its pages and waits until they are durable.
  void Store(const Prompt& prompt) {
    const size_t blocks = prompt.chain().size();
    ASSERT_EQ(SealBlocks(&*cache_, prompt, 0, blocks).size(), blocks);
    ASSERT_TRUE(cache_->Flush(kForever));
  }

  // Empties the memory tier: takes every page once.
  void EvictAll() {
    std::vector<PageHandle> all;
    while (true) {
      Result<PageHandle> page = cache_->pool()->Acquire();
      if (!page.ok()) break;
      all.push_back(std::move(page).value());
    }
    ASSERT_EQ(cache_->stats().resident_pages, cache_->stats().pinned_pages);
  }

  MissReason ReasonFor(const Prompt& prompt) { return cache_->Lookup(prompt.chain()).miss_reason; }

  FakeClock clock_;
  std::optional<GatedStore> store_;
  std::optional<PageCache> cache_;
};

TEST_F(PageCacheTest, PagesOutliveTheirSessionInMemory) {
  MakeWithoutStore(8);
  const Prompt prompt(1, 3);
  SealBlocks(&*cache_, prompt, 0, 3);
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  ASSERT_EQ(hit.num_blocks(), 3u);
  EXPECT_TRUE(HoldsPagesOf(hit, prompt));
  EXPECT_EQ(hit.tiers, std::vector<CacheTier>(3, CacheTier::kResident));
  EXPECT_EQ(hit.miss_reason, MissReason::kNone);
  EXPECT_EQ(hit.bytes_read, 0u);
  EXPECT_EQ(cache_->stats().pinned_pages, 3u);
  EXPECT_EQ(cache_->stats().resident_bytes, 3 * kPageBytes);
}

TEST_F(PageCacheTest, GoesOnInTheStoreWhereMemoryEnds) {
  Make(6);
  const Prompt prompt(1, 6);
  Store(prompt);
  {
    // Leaves go first: three strangers take the pages of the last three blocks.
    std::vector<PageHandle> strangers;
    for (int i = 0; i < 3; ++i) strangers.push_back(std::move(cache_->pool()->Acquire()).value());
    EXPECT_EQ(cache_->stats().evictions, 3u);
  }
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  ASSERT_EQ(hit.num_blocks(), 6u);
  EXPECT_TRUE(HoldsPagesOf(hit, prompt));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(hit.tiers[i], i < 3 ? CacheTier::kResident : CacheTier::kStore) << i;
  }
  EXPECT_EQ(hit.bytes_read, 3 * kPageBytes);
  const PageCacheStats stats = cache_->stats();
  EXPECT_EQ(stats.resident_hits, 3u);
  EXPECT_EQ(stats.store_hits, 3u);
  EXPECT_EQ(stats.bytes_read, 3 * kPageBytes);
  EXPECT_EQ(cache_->Lookup(prompt.chain()).bytes_read, 0u) << "they are resident now";
}

TEST_F(PageCacheTest, ReadsLongPrefixesInBatches) {
  Make(20, kLargeBudget, {.batch_pages = 4});
  const Prompt prompt(1, 11);
  Store(prompt);
  EvictAll();
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  EXPECT_EQ(hit.num_blocks(), 11u);
  EXPECT_TRUE(HoldsPagesOf(hit, prompt));
  EXPECT_EQ(store_->pages_asked(), 11u);
}

TEST_F(PageCacheTest, Case_B02_ADivergingPromptHitsTheBlocksBefore) {
  Make(16);
  const Prompt prompt(1, 4);
  Store(prompt);
  const Prompt diverging(prompt, 2, 9, 3);
  const PrefixHit hit = cache_->Lookup(diverging.chain());
  EXPECT_EQ(hit.num_blocks(), 2u);
  EXPECT_EQ(hit.miss_reason, MissReason::kNeverSeen);
}

TEST_F(PageCacheTest, Case_B04_OneBlockIsEnoughForAHit) {
  Make(4);
  const Prompt prompt(1, 1);
  Store(prompt);
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 1u);
  EvictAll();
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 1u);
}

TEST_F(PageCacheTest, Case_M02_EveryMissHasItsReason) {
  Make(8);
  const Prompt prompt(1, 2);
  EXPECT_EQ(cache_->Lookup({}).miss_reason, MissReason::kTooShort);
  EXPECT_EQ(ReasonFor(prompt), MissReason::kNeverSeen);
  EXPECT_EQ(cache_->Lookup(prompt.chain(), {.timeout = std::chrono::milliseconds(0)}).miss_reason,
            MissReason::kTimeout);
  Store(prompt);
  EXPECT_EQ(ReasonFor(prompt), MissReason::kNone);
  const auto reasons = cache_->stats().miss_reasons;
  EXPECT_EQ(reasons[static_cast<size_t>(MissReason::kTooShort)], 1u);
  EXPECT_EQ(reasons[static_cast<size_t>(MissReason::kNeverSeen)], 1u);
  EXPECT_EQ(reasons[static_cast<size_t>(MissReason::kTimeout)], 1u);
  EXPECT_EQ(reasons[static_cast<size_t>(MissReason::kNone)], 1u);

  MakeWithoutStore(8);
  EXPECT_EQ(ReasonFor(prompt), MissReason::kNotResident);
}

TEST_F(PageCacheTest, EveryMissReasonHasANameOfItsOwn) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kNumMissReasons; ++i) {
    names.emplace_back(MissReasonName(static_cast<MissReason>(i)));
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_STREQ(MissReasonName(MissReason::kNoPage), "no free page");
}

TEST_F(PageCacheTest, Case_R03_ABadBlockIsComputedAgainAndHeals) {
  Make(8);
  const Prompt prompt(1, 3);
  Store(prompt);
  EvictAll();
  ASSERT_TRUE(store_->DamageForTest(prompt.block(1).hash,
                                    [](MemoryStore::StoredPage& page) { page.payload[17] ^= 1; }));
  {
    const PrefixHit hit = cache_->Lookup(prompt.chain());
    EXPECT_EQ(hit.num_blocks(), 1u);
    EXPECT_EQ(hit.miss_reason, MissReason::kCorrupt);
  }
  EXPECT_EQ(ReasonFor(prompt), MissReason::kQuarantined);
  SealBlocks(&*cache_, prompt, 1, 2);
  ASSERT_TRUE(cache_->Flush(kForever));
  EvictAll();
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  EXPECT_EQ(hit.num_blocks(), 3u);
  EXPECT_TRUE(HoldsPagesOf(hit, prompt));
}

TEST_F(PageCacheTest, Case_Q11_AFullStoreRefusesAndIsTold) {
  Make(8, MemoryStore::StoredBytes(kBlock, kPageBytes) * 2);
  const Prompt prompt(1, 3);
  Store(prompt);
  const PageCacheStats stats = cache_->stats();
  EXPECT_EQ(stats.writes.outcomes[static_cast<size_t>(PutOutcome::kStored)], 2u);
  EXPECT_EQ(stats.writes.outcomes[static_cast<size_t>(PutOutcome::kRefusedFull)], 1u);
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 3u) << "memory has it";
  EvictAll();
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  EXPECT_EQ(hit.num_blocks(), 2u);
  EXPECT_EQ(hit.miss_reason, MissReason::kRefused);
}

TEST_F(PageCacheTest, WhatATenantMayKeepHoldsForTheStoreAndNotForMemory) {
  Make(8);
  const Prompt prompt(1, 3);
  const uint64_t page_bytes = MemoryStore::StoredBytes(kBlock, kPageBytes);
  SealBlocks(&*cache_, prompt, 0, 3,
             {.limits = {.max_bytes = 2 * page_bytes, .retention = std::chrono::hours(200)}});
  ASSERT_TRUE(cache_->Flush(kForever));
  const PageCacheStats stats = cache_->stats();
  EXPECT_EQ(stats.writes.outcomes[static_cast<size_t>(PutOutcome::kRefusedTenantFull)], 1u);
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 3u);
  EvictAll();
  EXPECT_EQ(ReasonFor(prompt), MissReason::kRefused);
  clock_.Advance(199 * kHourUs);
  EXPECT_EQ(store_->Stats().promised_bytes, 2 * page_bytes);
}

TEST_F(PageCacheTest, ServingFromMemoryExtendsThePromiseOfTheStore) {
  Make(8, MemoryStore::StoredBytes(kBlock, kPageBytes));
  const Prompt prompt(1, 1);
  Store(prompt);
  clock_.Advance(71 * kHourUs);
  EXPECT_EQ(cache_->Lookup(prompt.chain()).tiers[0], CacheTier::kResident);
  ASSERT_TRUE(cache_->Flush(kForever));
  clock_.Advance(71 * kHourUs);
  const Prompt other(2, 1);
  Store(other);  // would take the space of an expired page
  EvictAll();
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 1u);
  EXPECT_EQ(ReasonFor(other), MissReason::kRefused);
}

TEST_F(PageCacheTest, AnExpiredPageWhoseSpaceWasTakenIsAMissWithThatReason) {
  Make(8, MemoryStore::StoredBytes(kBlock, kPageBytes));
  const Prompt prompt(1, 1);
  Store(prompt);
  clock_.Advance(73 * kHourUs);
  Store(Prompt(2, 1));
  EvictAll();
  EXPECT_EQ(ReasonFor(prompt), MissReason::kExpired);
}

TEST_F(PageCacheTest, Case_Q12_LookingUpTakesNoPageForWhatIsNotThere) {
  Make(4);
  const Prompt resident(1, 4);
  Store(resident);
  const Prompt huge(2, 5000);
  const PrefixHit hit = cache_->Lookup(huge.chain());
  EXPECT_EQ(hit.num_blocks(), 0u);
  EXPECT_EQ(hit.miss_reason, MissReason::kNeverSeen);
  EXPECT_EQ(cache_->stats().evictions, 0u);
  EXPECT_EQ(cache_->stats().resident_pages, 4u);
}

TEST_F(PageCacheTest, Case_Q12_APromptLargerThanMemoryHitsAsFarAsMemoryGoes) {
  Make(4, kLargeBudget, {.batch_pages = 3});
  const Prompt prompt(1, 10);
  for (size_t i = 0; i < 10; ++i) {
    SealBlocks(&*cache_, prompt, i, i + 1);
    ASSERT_TRUE(cache_->Flush(kForever));
  }
  {
    const PrefixHit hit = cache_->Lookup(prompt.chain());
    EXPECT_EQ(hit.num_blocks(), 4u);
    EXPECT_TRUE(HoldsPagesOf(hit, prompt));
    EXPECT_EQ(hit.miss_reason, MissReason::kNoPage);
  }
  EXPECT_EQ(cache_->stats().pinned_pages, 0u);
}

TEST_F(PageCacheTest, Case_Q05_MakingRoomNeverTakesWhatTheRequestLookedUp) {
  Make(4);
  const Prompt prompt(1, 4);
  Store(prompt);
  EvictAll();
  {
    const Prompt beginning(prompt, 2, 0, 0);
    ASSERT_EQ(cache_->Lookup(beginning.chain()).num_blocks(), 2u);
  }
  const Prompt other(2, 2);
  Store(other);  // newer than the beginning of `prompt`, which is the oldest in a full pool now
  ASSERT_EQ(cache_->stats().resident_pages, 4u);
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  ASSERT_EQ(hit.num_blocks(), 4u) << "the room came from the other prompt";
  EXPECT_TRUE(HoldsPagesOf(hit, prompt));
  EXPECT_EQ(hit.tiers[1], CacheTier::kResident);
  EXPECT_FALSE(cache_->pool()->Acquire().ok()) << "all four are pinned";
}

TEST_F(PageCacheTest, Case_Q04_ANewPageIsNotTheNextVictim) {
  MakeWithoutStore(4);
  for (int32_t i = 0; i < 4; ++i) SealBlocks(&*cache_, Prompt(i, 1), 0, 1);
  for (int32_t i = 4; i < 20; ++i) {
    const Prompt prompt(i, 1);
    SealBlocks(&*cache_, prompt, 0, 1);
    EXPECT_EQ(cache_->stats().evictions, static_cast<uint64_t>(i - 3));
    for (int32_t back = 0; back < 4; ++back) {
      // Oldest first, so that looking does not change the order.
      EXPECT_EQ(cache_->Lookup(Prompt(i - 3 + back, 1).chain()).num_blocks(), 1u) << i << back;
    }
  }
}

TEST_F(PageCacheTest, Case_Q09_ASharedPrefixIsKeptOnce) {
  Make(8);
  const Prompt prompt(1, 2);
  const auto first = SealBlocks(&*cache_, prompt, 0, 2);
  const auto second = SealBlocks(&*cache_, prompt, 0, 2);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(first[i].bytes(), second[i].bytes());
  ASSERT_TRUE(cache_->Flush(kForever));
  EXPECT_EQ(cache_->stats().pool.pages_in_use, 2u);
  EXPECT_EQ(cache_->stats().shared_seals, 2u);
  EXPECT_EQ(store_->Stats().puts_stored, 2u);
  EXPECT_EQ(store_->Stats().puts_already_there, 0u);
}

TEST_F(PageCacheTest, EqualHashesWithOtherBytesAreCountedAndNotMixed) {
  MakeWithoutStore(4);
  const Prompt prompt(1, 1);
  const auto first = SealBlocks(&*cache_, prompt, 0, 1);
  PageHandle other = std::move(cache_->pool()->Acquire()).value();
  const uint8_t* const bytes = other.bytes();
  const PageHandle kept = cache_->Seal(std::move(other), prompt.block(0), {});
  EXPECT_EQ(kept.bytes(), bytes);
  EXPECT_EQ(cache_->stats().unequal_seals, 1u);
  EXPECT_TRUE(HoldsPagesOf(cache_->Lookup(prompt.chain()), prompt));
}

TEST_F(PageCacheTest, Case_T03_NoStoreLeavesNothingOnAnyTier) {
  Make(8);
  const Prompt prompt(1, 2);
  {
    const auto pages = SealBlocks(&*cache_, prompt, 0, 2, {.no_store = true});
    EXPECT_TRUE(IsPageOf(prompt.block(0).hash, pages[0].bytes()));
  }
  ASSERT_TRUE(cache_->Flush(kForever));
  EXPECT_EQ(cache_->stats().pool.pages_in_use, 0u);
  EXPECT_EQ(cache_->stats().writes.offered, 0u);
  EXPECT_EQ(store_->Stats().pages, 0u);
  EXPECT_EQ(ReasonFor(prompt), MissReason::kNeverSeen);
}

TEST_F(PageCacheTest, Case_T03_ANoStoreLookupReadsAndKeepsItToItself) {
  Make(8);
  const Prompt prompt(1, 2);
  Store(prompt);
  EvictAll();
  {
    const PrefixHit hit = cache_->Lookup(prompt.chain(), {.no_store = true});
    EXPECT_EQ(hit.num_blocks(), 2u);
    EXPECT_TRUE(HoldsPagesOf(hit, prompt));
    EXPECT_EQ(hit.bytes_read, 2 * kPageBytes);
  }
  EXPECT_EQ(cache_->stats().resident_pages, 0u);
  EXPECT_EQ(cache_->stats().pool.pages_in_use, 0u);
}

TEST_F(PageCacheTest, Case_W04_APageBeingWrittenIsPinnedUntilItsCopyIsDurable) {
  Make(2);
  const Prompt prompt(1, 1);
  store_->ClosePuts();
  SealBlocks(&*cache_, prompt, 0, 1);
  store_->AwaitPut();
  {
    const PageHandle stranger = std::move(cache_->pool()->Acquire()).value();
    EXPECT_FALSE(cache_->pool()->Acquire().ok()) << "the other page is being written";
  }
  EXPECT_EQ(cache_->stats().pinned_pages, 1u);
  store_->OpenPuts();
  ASSERT_TRUE(cache_->Flush(kForever));
  EXPECT_EQ(cache_->stats().pinned_pages, 0u);
  EvictAll();
  EXPECT_TRUE(HoldsPagesOf(cache_->Lookup(prompt.chain()), prompt));
  EXPECT_EQ(cache_->stats().store_hits, 1u);
}

TEST_F(PageCacheTest, Case_R06_AHungStoreCostsOneDeadlineThenNothing) {
  Make(8);
  const Prompt prompt(1, 2);
  Store(prompt);
  EvictAll();
  store_->MakeReadsOverdue();
  EXPECT_EQ(ReasonFor(prompt), MissReason::kTimeout);
  EXPECT_EQ(cache_->stats().overdue_reads, 1u);
  const uint64_t asked = store_->pages_asked();
  EXPECT_EQ(ReasonFor(prompt), MissReason::kStoreHung);
  EXPECT_EQ(store_->pages_asked(), asked);

  store_->LetOverdueReadsEnd();
  while (cache_->stats().overdue_reads > 0) std::this_thread::yield();
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  EXPECT_EQ(hit.num_blocks(), 2u);
  EXPECT_TRUE(HoldsPagesOf(hit, prompt));
}

TEST_F(PageCacheTest, Case_W05_AnOverdueReadKeepsItsPagesFromOthers) {
  Make(4);
  const Prompt prompt(1, 2);
  Store(prompt);
  EvictAll();
  store_->MakeReadsOverdue();
  EXPECT_EQ(ReasonFor(prompt), MissReason::kTimeout);
  std::vector<PageHandle> others;
  others.push_back(std::move(cache_->pool()->Acquire()).value());
  others.push_back(std::move(cache_->pool()->Acquire()).value());
  EXPECT_FALSE(cache_->pool()->Acquire().ok());
  store_->LetOverdueReadsEnd();  // the read writes to its pages now
  while (cache_->stats().overdue_reads > 0) std::this_thread::yield();
  for (const PageHandle& page : others) EXPECT_EQ(page.bytes()[0], 0);
  EXPECT_TRUE(cache_->pool()->Acquire().ok());
}

TEST_F(PageCacheTest, Case_W03_AFailedPutIsCountedAndTheBlockComputedAgain) {
  FaultInjectionStore store(
      std::make_unique<MemoryStore>(MemoryStoreOptions{.budget_bytes = kLargeBudget}, &clock_), 1);
  cache_.emplace(MakePool(8), &store);
  store.StrikeNext(Fault::kFailPut, 1);
  const Prompt prompt(1, 2);
  Store(prompt);
  EXPECT_EQ(cache_->stats().writes.outcomes[static_cast<size_t>(PutOutcome::kFailed)], 1u);
  EvictAll();
  EXPECT_EQ(ReasonFor(prompt), MissReason::kNeverSeen);
  Store(prompt);
  EvictAll();
  store.StrikeNext(Fault::kFailGet, 1);
  EXPECT_EQ(ReasonFor(prompt), MissReason::kFailed);
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 2u);
  cache_.reset();
}

TEST_F(PageCacheTest, Case_B06_WindowsAndPagesDoNotTakeEachOthersRoom) {
  MakeWithoutStore(4);
  const Prompt prompt(1, 4);
  SealBlocks(&*cache_, prompt, 0, 4);
  WindowPool windows({.budget_bytes = 1000}, &clock_);
  for (uint8_t i = 0; i < 50; ++i) {
    windows.Put(Sha256(std::string(1, static_cast<char>(i))), {std::vector<uint8_t>(400, i), {}});
  }
  EXPECT_EQ(windows.stats().checkpoints, 2u);
  EXPECT_EQ(cache_->stats().evictions, 0u);
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 4u);
  SealBlocks(&*cache_, Prompt(2, 4), 0, 4);
  EXPECT_EQ(cache_->stats().evictions, 4u);
  EXPECT_EQ(windows.stats().checkpoints, 2u);
}

TEST_F(PageCacheTest, WhatIsResidentBeyondAGapIsNotReadAgain) {
  Make(4);
  const Prompt prompt(1, 3);
  auto pages = SealBlocks(&*cache_, prompt, 0, 3);
  const PageHandle last = std::move(pages[2]);
  pages.clear();
  ASSERT_TRUE(cache_->Flush(kForever));
  EvictAll();
  ASSERT_EQ(cache_->stats().resident_pages, 1u) << "the last block, which is pinned";
  const PrefixHit hit = cache_->Lookup(prompt.chain());
  ASSERT_EQ(hit.num_blocks(), 3u);
  EXPECT_EQ(hit.pages[2].bytes(), last.bytes());
  EXPECT_EQ(hit.tiers[2], CacheTier::kResident);
  EXPECT_EQ(store_->pages_asked(), 2u);
}

TEST_F(PageCacheTest, ABlockStoredSinceTheStoreWasAskedIsAHit) {
  class LateStore : public MemoryStore {
   public:
    using MemoryStore::MemoryStore;
    std::vector<bool> Contains(std::span<const BlockHash> keys) override {
      return std::vector<bool>(keys.size(), false);
    }
  };
  LateStore store({.budget_bytes = kLargeBudget}, &clock_);
  cache_.emplace(MakePool(8), &store);
  const Prompt prompt(1, 2);
  Store(prompt);
  EvictAll();
  EXPECT_EQ(cache_->Lookup(prompt.chain()).num_blocks(), 2u);
  cache_.reset();
}

TEST_F(PageCacheTest, SealingABlockEndsTheClaimOnIt) {
  MakeWithoutStore(4);
  const Prompt prompt(1, 2);
  const ClaimResult claim = cache_->Claim(prompt.chain(), kForever);
  ASSERT_EQ(claim.outcome, ClaimOutcome::kCompute);
  const auto now = std::chrono::milliseconds(0);
  EXPECT_EQ(cache_->Claim(prompt.chain().first(1), now).outcome, ClaimOutcome::kTimedOut);
  const auto pages = SealBlocks(&*cache_, prompt, 0, 1);
  EXPECT_EQ(cache_->Claim(prompt.chain().first(1), now).outcome, ClaimOutcome::kLookAgain);
  EXPECT_EQ(cache_->Claim(prompt.chain(), now).outcome, ClaimOutcome::kTimedOut);
}

TEST_F(PageCacheTest, AClaimAfterTheBlockBecameResidentIsToldToLookAgain) {
  MakeWithoutStore(4);
  const Prompt prompt(1, 2);
  const auto pages = SealBlocks(&*cache_, prompt, 0, 1);
  EXPECT_EQ(cache_->Claim(prompt.chain(), kForever).outcome, ClaimOutcome::kLookAgain);
  const ClaimResult rest = cache_->Claim(prompt.chain().subspan(1), kForever);
  EXPECT_EQ(rest.outcome, ClaimOutcome::kCompute);
}

}  // namespace
}  // namespace emberkv
