// What every KvStore keeps that survives its process. Included by store/store_contract_test.h,
// which says how to use it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/kv_store.h"
#include "store/store_contract.h"
#include "store/test_pages.h"

namespace emberkv {

template <typename Harness>
class DurableStoreContract : public StoreContract<Harness> {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DurableStoreContract);

TYPED_TEST_SUITE_P(DurableStoreContract);

TYPED_TEST_P(DurableStoreContract, Case_W02_PagesSurviveARestart) {
  const auto pages = this->StoreNewPages(20, 1);
  const auto others = this->StoreNewPages(4, 2);
  this->harness_.Reopen(Reboot::kNo);
  this->ExpectAllHit(pages);
  this->ExpectAllHit(others);
  EXPECT_THAT(PutPages(this->store(), pages), ::testing::Each(PutOutcome::kAlreadyThere));
  EXPECT_EQ(*this->store().EraseTenant(TestTenant(1)), pages.size());
  this->harness_.Reopen(Reboot::kNo);
  EXPECT_THAT(this->store().Contains(KeysOf(pages)), ::testing::Each(false));
  this->ExpectAllHit(others);
}

TYPED_TEST_P(DurableStoreContract, Case_Q02_UsageSurvivesARestart) {
  const auto filling = this->FillUp();
  const StoreStats before = this->store().Stats();
  this->harness_.Reopen(Reboot::kNo);
  const StoreStats after = this->store().Stats();
  EXPECT_EQ(after.pages, before.pages);
  EXPECT_EQ(after.promised_bytes, before.promised_bytes);
  EXPECT_GE(after.used_bytes, after.promised_bytes);
  EXPECT_LE(after.used_bytes, TypeParam::kBudgetBytes);
  EXPECT_EQ(PutPage(this->store(), filling.refused[0]), PutOutcome::kRefusedFull);
  this->ExpectAllHit(filling.stored);
}

TYPED_TEST_P(DurableStoreContract, DeadlinesRunOnWhileTheStoreIsClosed) {
  this->FillUp();
  this->harness_.Reopen(Reboot::kNo);
  this->clock().Advance(2 * kRetentionUs);
  this->harness_.Reopen(Reboot::kNo);
  EXPECT_EQ(this->store().Stats().promised_bytes, 0u);
  EXPECT_EQ(PutPage(this->store(), this->NewPage()), PutOutcome::kStored);
}

TYPED_TEST_P(DurableStoreContract, ExtensionsSurviveARestart) {
  const auto pages = this->StoreNewPages(4);
  this->clock().Advance(kRetentionUs * 9 / 10);
  this->ExpectAllHit(pages);
  this->harness_.Reopen(Reboot::kNo);
  this->clock().Advance(kRetentionUs * 9 / 10);
  this->FillUp();
  this->ExpectAllHit(pages);
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(DurableStoreContract, Case_Q10_ARebootAndAWallClockJumpBreakNoPromise) {
  const auto filling = this->FillUp();
  for (const int64_t jump_us : {kTenDaysUs, -2 * kTenDaysUs, kTenDaysUs}) {
    this->clock().JumpWall(jump_us);
    this->harness_.Reopen(Reboot::kYes);
    EXPECT_EQ(PutPage(this->store(), filling.refused[0]), PutOutcome::kRefusedFull);
    EXPECT_EQ(this->store().Sweep(), 0u);
    this->ExpectAllHit(filling.stored);
  }
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(DurableStoreContract, Case_Q10_NothingLivesForEverAcrossReboots) {
  this->FillUp();
  this->clock().JumpWall(-kTenDaysUs);
  this->harness_.Reopen(Reboot::kYes);
  this->clock().Advance(2 * kRetentionUs);
  EXPECT_EQ(this->store().Stats().promised_bytes, 0u);
  EXPECT_EQ(PutPage(this->store(), this->NewPage()), PutOutcome::kStored);
}

TYPED_TEST_P(DurableStoreContract, ADamagedPageIsNotServedAfterARestart) {
  const auto pages = this->StoreNewPages(2);
  this->harness_.Damage(pages[0].key);
  this->harness_.Reopen(Reboot::kNo);
  EXPECT_NE(ReadPage(this->store(), pages[0]), GetOutcome::kHit);
  EXPECT_EQ(ReadPage(this->store(), pages[1]), GetOutcome::kHit);
}

TYPED_TEST_P(DurableStoreContract, WhatTenantsHaveSurvivesARestart) {
  const StoreLimits limits{.max_bytes = 4 * TypeParam::kStoredPageBytes,
                           .retention = kContractRetention * 3};
  const auto pages = this->NewPages(5, 1);
  PutPagesWithin(this->store(), pages, limits);
  this->StoreNewPages(3, 2);
  this->harness_.Reopen(Reboot::kNo);
  EXPECT_EQ(SumOf(this->store(), 1).promised_bytes, limits.max_bytes);
  EXPECT_EQ(SumOf(this->store(), 2).pages, 3u);
  EXPECT_THAT(PutPagesWithin(this->store(), {&pages[4], 1}, limits),
              ::testing::Each(PutOutcome::kRefusedTenantFull));

  this->clock().Advance(2 * kRetentionUs);
  this->ExpectAllHit(std::span(pages).first(4));  // for their own retention, which nobody tells it again
  this->harness_.Reopen(Reboot::kYes);
  this->clock().Advance(5 * kRetentionUs / 2);
  this->FillUp();
  this->ExpectAllHit(std::span(pages).first(4));
  this->ExpectNoPromiseBroken();
}

TYPED_TEST_P(DurableStoreContract, WhyPagesAreMissingSurvivesARestart) {
  const auto filling = this->FillUp(1);
  const TestPage& corrupt = filling.stored[0];
  this->harness_.Damage(corrupt.key);
  EXPECT_EQ(ReadPage(this->store(), corrupt), GetOutcome::kCorrupt);
  this->harness_.Reopen(Reboot::kNo);
  this->harness_.Reopen(Reboot::kNo);  // nobody asked meanwhile
  EXPECT_EQ(ReadPage(this->store(), corrupt), GetOutcome::kQuarantined);
  EXPECT_EQ(this->store().Stats().quarantined, 1u);
  EXPECT_THAT(ReadPages(this->store(), filling.refused), ::testing::Each(GetOutcome::kRefused));

  this->clock().Advance(2 * kRetentionUs);
  EXPECT_GT(this->store().Sweep(), 0u);
  this->harness_.Reopen(Reboot::kYes);
  const auto expired = std::span(filling.stored).subspan(1);
  EXPECT_THAT(ReadPages(this->store(), expired), ::testing::Contains(GetOutcome::kExpired));
  EXPECT_THAT(ReadPages(this->store(), expired), ::testing::Not(::testing::Contains(GetOutcome::kNeverSeen)));

  // A page that is stored again is missed for nothing that was before.
  EXPECT_EQ(PutPage(this->store(), corrupt), PutOutcome::kStored);
  EXPECT_EQ(this->store().Stats().quarantined, 0u);
  EXPECT_TRUE(this->store().EraseTenant(TestTenant(1)).ok());
  this->harness_.Reopen(Reboot::kNo);
  EXPECT_EQ(ReadPage(this->store(), corrupt), GetOutcome::kNeverSeen);
}

REGISTER_TYPED_TEST_SUITE_P(DurableStoreContract, Case_W02_PagesSurviveARestart,
                            Case_Q02_UsageSurvivesARestart, DeadlinesRunOnWhileTheStoreIsClosed,
                            ExtensionsSurviveARestart,
                            Case_Q10_ARebootAndAWallClockJumpBreakNoPromise,
                            Case_Q10_NothingLivesForEverAcrossReboots,
                            ADamagedPageIsNotServedAfterARestart, WhatTenantsHaveSurvivesARestart,
                            WhyPagesAreMissingSurvivesARestart);

}  // namespace emberkv
