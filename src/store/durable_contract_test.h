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

REGISTER_TYPED_TEST_SUITE_P(DurableStoreContract, Case_W02_PagesSurviveARestart,
                            Case_Q02_UsageSurvivesARestart, DeadlinesRunOnWhileTheStoreIsClosed,
                            ExtensionsSurviveARestart,
                            Case_Q10_ARebootAndAWallClockJumpBreakNoPromise,
                            Case_Q10_NothingLivesForEverAcrossReboots,
                            ADamagedPageIsNotServedAfterARestart);

}  // namespace emberkv
