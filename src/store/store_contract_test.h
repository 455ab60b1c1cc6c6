// What every KvStore keeps, as test suites that a backend instantiates with a harness of its own
// (store/store_contract.h says what that is):
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(Local, StoreContract, LocalHarness);
//   INSTANTIATE_TYPED_TEST_SUITE_P(Local, DurableStoreContract, LocalHarness);  // survives
//   restarts
//
// A backend may promise up to a third of the retention more than it must (deadlines written
// lazily), and may free space in pieces larger than a page; the suites leave room for both and for
// nothing else.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "store/durable_contract_test.h"  // DurableStoreContract
#include "store/kv_store.h"
#include "store/store_contract.h"
#include "store/test_pages.h"

namespace emberkv {

TYPED_TEST_SUITE_P(StoreContract);

// --- what is served ---

TYPED_TEST_P(StoreContract, ServesTheBytesThatWerePut) {
  const auto pages = this->StoreNewPages(10);
  this->ExpectAllHit(pages);
  this->ExpectAllHit(pages);
  EXPECT_THAT(this->store().Contains(KeysOf(pages)), ::testing::Each(true));
  EXPECT_EQ(this->store().Stats().pages, pages.size());
}

TYPED_TEST_P(StoreContract, KeepsPagesOfDifferentSizes) {
  std::vector<TestPage> pages;
  for (const size_t bytes : {size_t{1}, size_t{63}, TypeParam::kPayloadBytes - 1,
                             TypeParam::kPayloadBytes, TypeParam::kPayloadBytes}) {
    pages.push_back(MakeTestPage(this->next_page_++, bytes));
  }
  EXPECT_THAT(PutPages(this->store(), pages), ::testing::Each(PutOutcome::kStored));
  this->ExpectAllHit(pages);
}

TYPED_TEST_P(StoreContract, AnUnknownKeyWasNeverSeen) {
  this->StoreNewPages(1);
  const TestPage unknown = this->NewPage();
  EXPECT_EQ(ReadPage(this->store(), unknown), GetOutcome::kNeverSeen);
  EXPECT_THAT(this->store().Contains({&unknown.key, 1}), ::testing::ElementsAre(false));
  EXPECT_EQ(this->store().Stats().get_misses, 1u);
}

TYPED_TEST_P(StoreContract, Case_Q09_AnEqualPageIsStoredOnce) {
  const TestPage page = this->NewPage();
  const std::vector<TestPage> twice = {page, page};
  EXPECT_THAT(PutPages(this->store(), twice),
              ::testing::ElementsAre(PutOutcome::kStored, PutOutcome::kAlreadyThere));
  const StoreStats before = this->store().Stats();
  EXPECT_EQ(PutPage(this->store(), page), PutOutcome::kAlreadyThere);
  const StoreStats after = this->store().Stats();
  EXPECT_EQ(after.pages, 1u);
  EXPECT_EQ(after.used_bytes, before.used_bytes);
  EXPECT_EQ(after.bytes_written, page.payload.size());
  EXPECT_EQ(after.puts_already_there, 2u);
  this->ExpectAllHit(twice);
}

TYPED_TEST_P(StoreContract, OutcomesComeInTheOrderOfTheBatch) {
  const auto known = this->StoreNewPages(3);
  const auto fresh = this->NewPages(3);
  const std::vector<TestPage> mixed = {fresh[0], known[2], fresh[1], known[0], known[1], fresh[2]};
  using enum GetOutcome;
  EXPECT_THAT(ReadPages(this->store(), mixed),
              ::testing::ElementsAre(kNeverSeen, kHit, kNeverSeen, kHit, kHit, kNeverSeen));
  EXPECT_THAT(this->store().Contains(KeysOf(mixed)),
              ::testing::ElementsAre(false, true, false, true, true, false));
  EXPECT_THAT(PutPages(this->store(), mixed),
              ::testing::ElementsAre(PutOutcome::kStored, PutOutcome::kAlreadyThere,
                                     PutOutcome::kStored, PutOutcome::kAlreadyThere,
                                     PutOutcome::kAlreadyThere, PutOutcome::kStored));
}

TYPED_TEST_P(StoreContract, EmptyBatchesAreFine) {
  EXPECT_TRUE(this->store().Put({}).empty());
  EXPECT_TRUE(this->store().Get({}, kTestTimeout)->Wait().empty());
  EXPECT_TRUE(this->store().Contains({}).empty());
  this->store().Touch({});
}

TYPED_TEST_P(StoreContract, WaitGivesTheSameOutcomesAgain) {
  const auto pages = this->StoreNewPages(1);
  std::vector<uint8_t> payload(pages[0].payload.size());
  const auto pending = this->store().Get({pages[0].Request(payload)}, kTestTimeout);
  EXPECT_THAT(pending->Wait(), ::testing::ElementsAre(GetOutcome::kHit));
  EXPECT_THAT(pending->Wait(), ::testing::ElementsAre(GetOutcome::kHit));
  EXPECT_EQ(this->store().Stats().get_hits, 1u);
}

TYPED_TEST_P(StoreContract, Case_R04_AnAbandonedReadLeavesTheBuffersAlone) {
  const auto pages = this->StoreNewPages(4);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<uint8_t>> payloads(pages.size());
    std::vector<GetRequest> requests;
    for (size_t i = 0; i < pages.size(); ++i) {
      payloads[i].resize(pages[i].payload.size());
      requests.push_back(pages[i].Request(payloads[i]));
    }
    this->store().Get(std::move(requests), kTestTimeout).reset();
    for (auto& payload : payloads) std::ranges::fill(payload, uint8_t{0x5a});
    for (const auto& payload : payloads) {
      EXPECT_TRUE(std::ranges::all_of(payload, [](uint8_t byte) { return byte == 0x5a; }));
    }
  }
  this->ExpectAllHit(pages);
}

// --- what is never served ---

TYPED_TEST_P(StoreContract, Case_I06_ARequestThatExpectsOtherPartsNeverHits) {
  const auto pages = this->StoreNewPages(2);
  const TestPage& page = pages[0];
  std::vector<uint8_t> payload(page.payload.size());

  std::vector<TestPage> wrong(5, page);
  wrong[0].tokens[77] ^= 1;
  wrong[1].tokens.pop_back();
  wrong[2].parent.bytes[31] ^= 1;
  wrong[3].provenance.replayed_at += 128;
  wrong[4].key = pages[1].key;  // a page that is there, and is another
  for (const TestPage& other : wrong) {
    EXPECT_THAT(this->store().Get({other.Request(payload)}, kTestTimeout)->Wait(),
                ::testing::ElementsAre(GetOutcome::kCorrupt));
  }
  EXPECT_EQ(this->store().Stats().get_corrupt, wrong.size());
  EXPECT_EQ(this->store().Stats().quarantined, 0u);
  this->ExpectAllHit(pages);  // nothing is wrong with the pages themselves
}

TYPED_TEST_P(StoreContract, APageOfAnotherSizeThanExpectedNeverHits) {
  const auto pages = this->StoreNewPages(2);
  std::vector<uint8_t> shorter(TypeParam::kPayloadBytes - 1);
  std::vector<uint8_t> longer(TypeParam::kPayloadBytes + 1);
  EXPECT_THAT(this->store()
                  .Get({pages[0].Request(shorter), pages[1].Request(longer)}, kTestTimeout)
                  ->Wait(),
              ::testing::Each(GetOutcome::kCorrupt));
}

TYPED_TEST_P(StoreContract, Case_I07_ARecordThatContradictsItselfIsNotStored) {
  std::vector<TestPage> wrong(4, this->NewPage());
  const TestPage right = wrong[0];
  wrong[0].tokens[0] += 1;
  wrong[1].parent.bytes[0] ^= 0x80;
  wrong[2].provenance.replayed_at += 128;
  wrong[3].key.bytes[7] ^= 4;
  EXPECT_THAT(PutPages(this->store(), wrong), ::testing::Each(PutOutcome::kFailed));
  EXPECT_THAT(this->store().Contains(KeysOf(wrong)), ::testing::Each(false));
  EXPECT_EQ(this->store().Stats().puts_failed, wrong.size());
  EXPECT_EQ(PutPage(this->store(), right), PutOutcome::kStored);
  EXPECT_EQ(ReadPage(this->store(), right), GetOutcome::kHit);
}

TYPED_TEST_P(StoreContract, Case_R03_ADamagedPageIsQuarantinedUntilItIsStoredAgain) {
  const auto pages = this->StoreNewPages(3);
  this->harness_.Damage(pages[1].key);
  using enum GetOutcome;
  EXPECT_THAT(ReadPages(this->store(), pages), ::testing::ElementsAre(kHit, kCorrupt, kHit));
  EXPECT_THAT(ReadPages(this->store(), pages), ::testing::ElementsAre(kHit, kQuarantined, kHit));
  EXPECT_THAT(this->store().Contains(KeysOf(pages)), ::testing::ElementsAre(true, false, true));
  EXPECT_EQ(this->store().Stats().get_corrupt, 1u);
  EXPECT_EQ(this->store().Stats().quarantined, 1u);

  EXPECT_EQ(PutPage(this->store(), pages[1]), PutOutcome::kStored);
  this->ExpectAllHit(pages);
  EXPECT_EQ(this->store().Stats().quarantined, 0u);
}

TYPED_TEST_P(StoreContract, Case_T04_ErasingATenantHidesItsPagesAndNoOthers) {
  const auto theirs = this->StoreNewPages(5, 1);
  const auto others = this->StoreNewPages(5, 2);
  EXPECT_EQ(*this->store().EraseTenant(TestTenant(1)), 5u);
  EXPECT_THAT(ReadPages(this->store(), theirs), ::testing::Each(GetOutcome::kNeverSeen));
  EXPECT_THAT(this->store().Contains(KeysOf(theirs)), ::testing::Each(false));
  this->ExpectAllHit(others);
  EXPECT_EQ(this->store().Stats().pages, 5u);
  EXPECT_EQ(*this->store().EraseTenant(TestTenant(1)), 0u);
  EXPECT_THAT(PutPages(this->store(), theirs), ::testing::Each(PutOutcome::kStored));
  this->ExpectAllHit(theirs);
}

TYPED_TEST_P(StoreContract, AnErasedTenantsSpaceIsUsedAgain) {
  const auto filling = this->FillUp(1);
  EXPECT_EQ(*this->store().EraseTenant(TestTenant(1)), filling.stored.size());
  EXPECT_EQ(this->store().Stats().promised_bytes, 0u);
  this->ExpectAllHit(this->StoreNewPages(this->kBatch, 2));
}

// --- the retention contract ---

TYPED_TEST_P(StoreContract, Case_Q11_AFullStoreRefusesAndKeepsItsPromises) {
  const auto filling = this->FillUp();
  const StoreStats stats = this->store().Stats();
  EXPECT_EQ(stats.puts_stored, filling.stored.size());
  EXPECT_EQ(stats.puts_refused_full, filling.refused.size());
  EXPECT_EQ(stats.pages, filling.stored.size());
  EXPECT_EQ(stats.evicted_expired, 0u);
  EXPECT_THAT(ReadPages(this->store(), filling.refused), ::testing::Each(GetOutcome::kRefused));

  this->clock().Advance(kRetentionUs - 1);
  EXPECT_EQ(PutPage(this->store(), filling.refused[0]), PutOutcome::kRefusedFull);
  this->ExpectAllHit(filling.stored);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, Case_Q01_TheBudgetHoldsWhateverIsOffered) {
  for (int round = 0; round < 3; ++round) {
    this->FillUp();
    const StoreStats stats = this->store().Stats();
    EXPECT_EQ(stats.budget_bytes, TypeParam::kBudgetBytes);
    EXPECT_LE(stats.used_bytes, stats.budget_bytes);
    EXPECT_LE(stats.promised_bytes, stats.used_bytes);
    EXPECT_GE(stats.used_bytes, stats.pages * TypeParam::kPayloadBytes);
    this->clock().Advance(2 * kRetentionUs);
  }
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, Case_Q04_NothingIsStoredAndEvictedAtOnce) {
  const auto old = this->FillUp().stored;
  this->clock().Advance(2 * kRetentionUs);
  const auto pages = this->NewPages(2 * old.size());  // more in one batch than the budget holds
  const auto outcomes = PutPages(this->store(), pages);
  std::vector<TestPage> stored;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (outcomes[i] == PutOutcome::kStored) stored.push_back(pages[i]);
  }
  EXPECT_GE(stored.size(), this->kBatch);
  EXPECT_LT(stored.size(), pages.size());
  this->ExpectAllHit(stored);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, Case_Q06_NewPagesCountAsJustUsed) {
  this->FillUp();
  this->clock().Advance(2 * kRetentionUs);
  const auto fresh = this->StoreNewPages(4);
  const auto more = this->FillUp().stored;
  this->ExpectAllHit(fresh);
  this->ExpectAllHit(more);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, Case_Q07_ProbingExtendsNothing) {
  const auto pages = this->StoreNewPages(5);
  EXPECT_GT(this->store().Stats().promised_bytes, 0u);
  this->clock().Advance(kRetentionUs * 9 / 10);
  EXPECT_THAT(this->store().Contains(KeysOf(pages)), ::testing::Each(true));
  this->clock().Advance(kRetentionUs * 5 / 10);
  EXPECT_EQ(this->store().Stats().promised_bytes, 0u);
}

TYPED_TEST_P(StoreContract, ServingTouchingAndPuttingAgainExtend) {
  const auto served = this->StoreNewPages(2);
  const auto touched = this->StoreNewPages(2);
  const auto put_again = this->StoreNewPages(2);
  this->clock().Advance(kRetentionUs * 9 / 10);
  this->ExpectAllHit(served);
  this->store().Touch(KeysOf(touched));
  EXPECT_THAT(PutPages(this->store(), put_again), ::testing::Each(PutOutcome::kAlreadyThere));
  this->clock().Advance(kRetentionUs * 9 / 10);
  this->FillUp();
  for (const auto& pages : {served, touched, put_again}) this->ExpectAllHit(pages);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, ExpiredPagesStayReadableUntilTheirSpaceIsNeeded) {
  const auto pages = this->StoreNewPages(3);
  this->clock().Advance(3 * kRetentionUs);
  EXPECT_EQ(this->store().Stats().promised_bytes, 0u);
  EXPECT_THAT(this->store().Contains(KeysOf(pages)), ::testing::Each(true));
  this->ExpectAllHit(pages);
  EXPECT_GT(this->store().Stats().promised_bytes, 0u);  // promised again
  this->FillUp();
  this->ExpectAllHit(pages);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, ExpiredPagesMakeRoomAndAreKnownAsExpired) {
  const auto old = this->FillUp().stored;
  this->clock().Advance(2 * kRetentionUs);
  const auto fresh = this->FillUp().stored;
  EXPECT_GE(2 * fresh.size(), old.size());
  const auto outcomes = ReadPages(this->store(), old);
  const auto num_expired = std::ranges::count(outcomes, GetOutcome::kExpired);
  const auto num_hits = std::ranges::count(outcomes, GetOutcome::kHit);
  EXPECT_GT(num_expired, 0);
  EXPECT_EQ(static_cast<size_t>(num_expired + num_hits), old.size());
  EXPECT_EQ(this->store().Stats().evicted_expired, static_cast<uint64_t>(num_expired));
  this->ExpectAllHit(fresh);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, SweepTakesExpiredPagesAndNoOthers) {
  const auto old = this->StoreNewPages(6);
  this->clock().Advance(2 * kRetentionUs);
  const auto fresh = this->StoreNewPages(6);
  EXPECT_EQ(this->store().Sweep(), old.size());
  EXPECT_THAT(this->store().Contains(KeysOf(old)), ::testing::Each(false));
  EXPECT_THAT(ReadPages(this->store(), old), ::testing::Each(GetOutcome::kExpired));
  this->ExpectAllHit(fresh);
  EXPECT_EQ(this->store().Sweep(), 0u);
  EXPECT_EQ(this->store().Stats().evicted_expired, old.size());
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, Case_Q08_AnOversizedPageIsRefusedUpFront) {
  const auto pages = this->FillUp().stored;
  this->clock().Advance(2 * kRetentionUs);  // there are victims now, and it must cost none of them
  const TestPage huge = MakeTestPage(this->next_page_++, TypeParam::kBudgetBytes);
  EXPECT_EQ(PutPage(this->store(), huge), PutOutcome::kRefusedTooLarge);
  EXPECT_EQ(this->store().Stats().puts_refused_too_large, 1u);
  EXPECT_THAT(this->store().Contains({&huge.key, 1}), ::testing::ElementsAre(false));
  EXPECT_EQ(this->store().Stats().evicted_expired, 0u);
  this->ExpectAllHit(pages);
}

TYPED_TEST_P(StoreContract, Case_Q10_WallClockJumpsBreakNoPromise) {
  const auto filling = this->FillUp();
  for (const int64_t jump_us : {kTenDaysUs, -2 * kTenDaysUs, kTenDaysUs}) {
    this->clock().JumpWall(jump_us);
    EXPECT_EQ(PutPage(this->store(), filling.refused[0]), PutOutcome::kRefusedFull);
    EXPECT_EQ(this->store().Sweep(), 0u);
    this->ExpectAllHit(filling.stored);
  }
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, Case_Q10_NothingLivesForEver) {
  for (const int64_t jump_us : {-kTenDaysUs, kTenDaysUs}) {
    this->FillUp();
    this->clock().JumpWall(jump_us);
    this->clock().Advance(2 * kRetentionUs);
    EXPECT_EQ(this->store().Stats().promised_bytes, 0u);
  }
  EXPECT_EQ(PutPage(this->store(), this->NewPage()), PutOutcome::kStored);
}

// --- what tenants may keep ---

TYPED_TEST_P(StoreContract, ATenantsLimitRefusesItsPagesAndNobodyElses) {
  const auto limits = this->LimitOfPages(4);
  const auto pages = this->NewPages(7, 1);
  using enum PutOutcome;
  EXPECT_THAT(PutPagesWithin(this->store(), std::span(pages).first(3), limits), ::testing::Each(kStored));
  EXPECT_THAT(PutPagesWithin(this->store(), std::span(pages).subspan(3), limits),
              ::testing::ElementsAre(kStored, kRefusedTenantFull, kRefusedTenantFull, kRefusedTenantFull));
  this->ExpectAllHit(std::span(pages).first(4));
  EXPECT_THAT(ReadPages(this->store(), std::span(pages).subspan(4)), ::testing::Each(GetOutcome::kRefused));
  EXPECT_EQ(SumOf(this->store(), 1).pages, 4u);
  EXPECT_EQ(SumOf(this->store(), 1).bytes, limits.max_bytes);
  EXPECT_EQ(SumOf(this->store(), 1).promised_bytes, limits.max_bytes);
  EXPECT_EQ(this->store().Stats().puts_refused_tenant_full, 3u);
  EXPECT_EQ(this->store().Stats().puts_refused_full, 0u);

  this->ExpectAllHit(this->StoreNewPages(this->kBatch, 2));
  EXPECT_EQ(SumOf(this->store(), 2).pages, this->kBatch);
  EXPECT_THAT(PutPagesWithin(this->store(), std::span(pages).first(4), limits),
              ::testing::Each(kAlreadyThere));
  EXPECT_EQ(*this->store().EraseTenant(TestTenant(1)), 4u);
  EXPECT_EQ(SumOf(this->store(), 1).pages, 0u);
  EXPECT_THAT(PutPagesWithin(this->store(), std::span(pages).subspan(4), limits), ::testing::Each(kStored));
}

TYPED_TEST_P(StoreContract, ALowerLimitKeepsThePromisesThatWereMade) {
  const auto pages = this->StoreNewPages(6, 1);
  const TestPage more = this->NewPage(1);
  EXPECT_THAT(PutPagesWithin(this->store(), {&more, 1}, this->LimitOfPages(2)),
              ::testing::Each(PutOutcome::kRefusedTenantFull));
  this->clock().Advance(kRetentionUs - 1);
  this->ExpectAllHit(pages);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, ExpiredPagesDoNotCountUntilTheyAreServed) {
  const auto limits = this->LimitOfPages(4);
  const auto old = this->NewPages(4, 1);
  EXPECT_THAT(PutPagesWithin(this->store(), old, limits), ::testing::Each(PutOutcome::kStored));
  this->clock().Advance(2 * kRetentionUs);
  EXPECT_EQ(SumOf(this->store(), 1).promised_bytes, 0u);
  EXPECT_EQ(SumOf(this->store(), 1).bytes, limits.max_bytes);
  const auto fresh = this->NewPages(3, 1);
  EXPECT_THAT(PutPagesWithin(this->store(), fresh, limits), ::testing::Each(PutOutcome::kStored));

  this->ExpectAllHit(old);  // serving asks nobody, and promises
  EXPECT_EQ(SumOf(this->store(), 1).promised_bytes, 7 * TypeParam::kStoredPageBytes);
  const TestPage more = this->NewPage(1);
  EXPECT_THAT(PutPagesWithin(this->store(), {&more, 1}, limits),
              ::testing::Each(PutOutcome::kRefusedTenantFull));
  this->ExpectAllHit(old);
  this->ExpectAllHit(fresh);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, APageIsPromisedForItsOwnRetentionAfterEachUse) {
  const auto brief = this->NewPages(3, 1);
  const auto lasting = this->NewPages(3, 2);
  PutPagesWithin(this->store(), brief, {.retention = kContractRetention / 4});
  PutPagesWithin(this->store(), lasting, {.retention = kContractRetention * 4});
  const auto usual = this->StoreNewPages(3, 3);
  const auto expect_promised = [&](bool brief_is, bool usual_is, bool lasting_is) {
    EXPECT_EQ(SumOf(this->store(), 1).promised_bytes > 0, brief_is);
    EXPECT_EQ(SumOf(this->store(), 2).promised_bytes > 0, lasting_is);
    EXPECT_EQ(SumOf(this->store(), 3).promised_bytes > 0, usual_is);
  };
  for (int use = 0; use < 3; ++use) {
    this->clock().Advance(kRetentionUs / 4 - 1);
    expect_promised(true, true, true);
    this->clock().Advance(kRetentionUs / 10);
    expect_promised(false, true, true);
    this->ExpectAllHit(brief);
    expect_promised(true, true, true);
    this->ExpectAllHit(usual);
    this->clock().Advance(kRetentionUs - 1);
    expect_promised(false, true, true);
    this->clock().Advance(kRetentionUs / 3 + 1);
    expect_promised(false, false, true);
    this->clock().Advance(2 * kRetentionUs);
    this->store().Touch(KeysOf(lasting));
    this->ExpectAllHit(brief);
    this->ExpectAllHit(usual);
  }
  this->clock().Advance(4 * kRetentionUs - 1);
  this->FillUp();
  this->ExpectAllHit(lasting);
  this->clock().Advance(6 * kRetentionUs);
  expect_promised(false, false, false);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, PuttingAgainGivesItsRetentionAndShortensNoPromise) {
  const auto pages = this->NewPages(4, 1);
  const auto promised_bytes = [&] { return SumOf(this->store(), 1).promised_bytes; };
  PutPagesWithin(this->store(), pages, {.retention = kContractRetention / 4});
  EXPECT_THAT(PutPagesWithin(this->store(), pages, {.retention = kContractRetention * 4}),
              ::testing::Each(PutOutcome::kAlreadyThere));
  this->clock().Advance(3 * kRetentionUs);
  this->ExpectAllHit(pages);
  this->clock().Advance(4 * kRetentionUs - 1);
  EXPECT_EQ(promised_bytes(), pages.size() * TypeParam::kStoredPageBytes);

  this->store().Touch(KeysOf(pages));
  PutPagesWithin(this->store(), pages, {.retention = kContractRetention / 4});
  this->clock().Advance(4 * kRetentionUs - 1);
  EXPECT_EQ(promised_bytes(), pages.size() * TypeParam::kStoredPageBytes) << "as it was promised before";
  this->FillUp();
  this->clock().Advance(2 * kRetentionUs);
  EXPECT_EQ(promised_bytes(), 0u);
  this->ExpectAllHit(pages);
  this->clock().Advance(kRetentionUs / 3);
  EXPECT_EQ(promised_bytes(), 0u) << "a use promises what the last put said";
  EXPECT_THAT(PutPages(this->store(), pages), ::testing::Each(PutOutcome::kAlreadyThere));
  this->clock().Advance(kRetentionUs - 1);
  EXPECT_GT(promised_bytes(), 0u) << "the store's again";
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(StoreContract, PuttingAnExpiredPageAgainIsNotRefused) {
  const auto pages = this->NewPages(4, 1);
  PutPagesWithin(this->store(), std::span(pages).first(2), {});
  this->clock().Advance(2 * kRetentionUs);
  const auto limits = this->LimitOfPages(2);
  PutPagesWithin(this->store(), std::span(pages).subspan(2), limits);
  EXPECT_THAT(PutPagesWithin(this->store(), pages, limits), ::testing::Each(PutOutcome::kAlreadyThere));
  EXPECT_EQ(SumOf(this->store(), 1).promised_bytes, 4 * TypeParam::kStoredPageBytes);
}

TYPED_TEST_P(StoreContract, EveryOutcomeIsCounted) {
  const auto pages = this->FillUp().stored;
  PutPages(this->store(), pages);
  PutPage(this->store(), MakeTestPage(this->next_page_++, TypeParam::kBudgetBytes));
  this->ExpectAllHit(pages);
  ReadPages(this->store(), this->NewPages(7));
  const StoreStats stats = this->store().Stats();
  EXPECT_EQ(stats.puts_stored, pages.size());
  EXPECT_EQ(stats.puts_already_there, pages.size());
  EXPECT_EQ(stats.puts_refused_too_large, 1u);
  EXPECT_EQ(stats.bytes_written, pages.size() * TypeParam::kPayloadBytes);
  EXPECT_EQ(stats.get_hits, pages.size());
  EXPECT_EQ(stats.bytes_read, pages.size() * TypeParam::kPayloadBytes);
  EXPECT_EQ(stats.get_misses, 7u);
  EXPECT_EQ(stats.puts_failed + stats.get_corrupt + stats.get_timeouts + stats.get_failed, 0u);
}

// --- threads ---

inline void RunThreads(int num_threads, const std::function<void(int thread)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) threads.emplace_back(body, t);
  for (std::thread& thread : threads) thread.join();
}

TYPED_TEST_P(StoreContract, ConcurrentPutsOfOneKeyStoreItOnce) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 10; ++round) {
    const auto pages = this->NewPages(16, 1);
    std::vector<std::vector<PutOutcome>> outcomes(kThreads);
    std::latch start(kThreads);
    RunThreads(kThreads, [&](int t) {
      start.arrive_and_wait();  // all at once, so that they do meet
      outcomes[t] = PutPages(this->store(), pages);
    });
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto num_with = [&](PutOutcome outcome) {
        return std::ranges::count_if(outcomes, [&](const auto& o) { return o[i] == outcome; });
      };
      ASSERT_EQ(num_with(PutOutcome::kStored), 1);
      ASSERT_EQ(num_with(PutOutcome::kAlreadyThere), kThreads - 1);
    }
    this->ExpectAllHit(pages);
    EXPECT_EQ(this->store().Stats().pages, pages.size());
    EXPECT_EQ(*this->store().EraseTenant(TestTenant(1)), pages.size());
  }
}

TYPED_TEST_P(StoreContract, ConcurrentUseServesRightBytesOnly) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 60;
  std::vector<TestPage> pages = this->NewPages(16, 1);
  for (TestPage& page : this->NewPages(4, 2)) pages.push_back(page);
  RunThreads(kThreads, [&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    for (int round = 0; round < kRounds; ++round) {
      std::vector<TestPage> some;
      for (int i = 0; i < 4; ++i) some.push_back(pages[random() % pages.size()]);
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          PutPages(this->store(), some);
          break;
        case 3:
          this->store().Touch(KeysOf(some));
          this->store().Contains(KeysOf(some));
          break;
        case 4:
          if (round % 8 == 0) (void)this->store().EraseTenant(TestTenant(2));
          this->store().Sweep();
          this->clock().Advance(kRetentionUs / 10);
          break;
        default:
          ReadPages(this->store(), some);  // expects right bytes
      }
    }
  });
  const StoreStats stats = this->store().Stats();
  EXPECT_EQ(stats.get_corrupt + stats.get_failed + stats.puts_failed, 0u);
  this->ExpectNoPromiseBroken();
  PutPages(this->store(), pages);
  this->ExpectAllHit(pages);
}

REGISTER_TYPED_TEST_SUITE_P(
    StoreContract, ServesTheBytesThatWerePut, KeepsPagesOfDifferentSizes, AnUnknownKeyWasNeverSeen,
    Case_Q09_AnEqualPageIsStoredOnce, OutcomesComeInTheOrderOfTheBatch, EmptyBatchesAreFine,
    WaitGivesTheSameOutcomesAgain, Case_R04_AnAbandonedReadLeavesTheBuffersAlone,
    Case_I06_ARequestThatExpectsOtherPartsNeverHits, APageOfAnotherSizeThanExpectedNeverHits,
    Case_I07_ARecordThatContradictsItselfIsNotStored,
    Case_R03_ADamagedPageIsQuarantinedUntilItIsStoredAgain,
    Case_T04_ErasingATenantHidesItsPagesAndNoOthers, AnErasedTenantsSpaceIsUsedAgain,
    Case_Q11_AFullStoreRefusesAndKeepsItsPromises, Case_Q01_TheBudgetHoldsWhateverIsOffered,
    Case_Q04_NothingIsStoredAndEvictedAtOnce, Case_Q06_NewPagesCountAsJustUsed,
    Case_Q07_ProbingExtendsNothing, ServingTouchingAndPuttingAgainExtend,
    ExpiredPagesStayReadableUntilTheirSpaceIsNeeded, ExpiredPagesMakeRoomAndAreKnownAsExpired,
    SweepTakesExpiredPagesAndNoOthers, Case_Q08_AnOversizedPageIsRefusedUpFront,
    Case_Q10_WallClockJumpsBreakNoPromise, Case_Q10_NothingLivesForEver,
    ATenantsLimitRefusesItsPagesAndNobodyElses, ALowerLimitKeepsThePromisesThatWereMade,
    ExpiredPagesDoNotCountUntilTheyAreServed, APageIsPromisedForItsOwnRetentionAfterEachUse,
    PuttingAgainGivesItsRetentionAndShortensNoPromise, PuttingAnExpiredPageAgainIsNotRefused,
    EveryOutcomeIsCounted,
    ConcurrentPutsOfOneKeyStoreItOnce, ConcurrentUseServesRightBytesOnly);

}  // namespace emberkv
