#include "store/fault_injection_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "store/memory_harness.h"
#include "store/store_contract_test.h"
#include "store/store_model_test.h"
#include "store/test_pages.h"

namespace emberkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class FaultlessHarness : public MemoryHarness {
 public:
  FaultlessHarness()
      : MemoryHarness([](auto store, const Clock*) {
          return std::make_unique<FaultInjectionStore>(std::move(store), 1);
        }) {}
};

INSTANTIATE_TYPED_TEST_SUITE_P(Faultless, StoreContract, FaultlessHarness);

TEST(FaultInjectionStore, WithoutFaultsAgreesWithTheModel) {
  RunStoreModel<FaultlessHarness>(kModelTestTime / 4);
}

class FaultInjectionStoreTest : public ::testing::Test {
 protected:
  FaultInjectionStoreTest()
      : store_(std::make_unique<MemoryStore>(MemoryStoreOptions{.budget_bytes = 1 << 20}, &clock_),
               1),
        pages_(MakeTestPages(0, 4, 100)) {}

  FakeClock clock_;
  FaultInjectionStore store_;
  const std::vector<TestPage> pages_;
};

TEST_F(FaultInjectionStoreTest, Case_W03_AFailedPutLeavesNoVisibleKey) {
  store_.StrikeNext(Fault::kFailPut, 2);
  using enum PutOutcome;
  EXPECT_THAT(PutPages(store_, pages_), ElementsAre(kFailed, kFailed, kStored, kStored));
  EXPECT_THAT(store_.Contains(KeysOf(pages_)), ElementsAre(false, false, true, true));
  EXPECT_THAT(PutPages(store_, pages_),
              ElementsAre(kStored, kStored, kAlreadyThere, kAlreadyThere));
  EXPECT_EQ(store_.struck(Fault::kFailPut), 2u);
  EXPECT_EQ(store_.Stats().puts_failed, 2u);
  EXPECT_EQ(store_.Stats().puts_stored, 4u);
}

TEST_F(FaultInjectionStoreTest, TurnsFullAndBack) {
  store_.StrikeAtRandom(Fault::kRefusePut, 1);
  EXPECT_THAT(PutPages(store_, pages_), Each(PutOutcome::kRefusedFull));
  EXPECT_EQ(store_.Stats().puts_refused_full, pages_.size());
  store_.StopFaults();
  EXPECT_THAT(PutPages(store_, pages_), Each(PutOutcome::kStored));
}

TEST_F(FaultInjectionStoreTest, ALostPutIsAcknowledgedAndGone) {
  store_.StrikeNext(Fault::kLosePut, 1);
  EXPECT_THAT(PutPages(store_, pages_), Each(PutOutcome::kStored));
  EXPECT_EQ(ReadPage(store_, pages_[0]), GetOutcome::kNeverSeen);
  EXPECT_EQ(ReadPage(store_, pages_[1]), GetOutcome::kHit);
  EXPECT_EQ(store_.Stats().puts_stored, pages_.size());
  EXPECT_EQ(store_.Stats().pages, pages_.size() - 1);
}

TEST_F(FaultInjectionStoreTest, FailsReadsInTheirPlaces) {
  PutPages(store_, pages_);
  store_.StrikeNext(Fault::kFailGet, 1);
  using enum GetOutcome;
  EXPECT_THAT(ReadPages(store_, pages_), ElementsAre(kFailed, kHit, kHit, kHit));
  EXPECT_THAT(ReadPages(store_, pages_), Each(kHit));
  EXPECT_EQ(store_.Stats().get_failed, 1u);
}

TEST_F(FaultInjectionStoreTest, ACorruptReadIsNoHitAndItsBytesAreWrong) {
  PutPage(store_, pages_[0]);
  store_.StrikeNext(Fault::kCorruptGet, 2);
  std::vector<uint8_t> there(100);
  std::vector<uint8_t> absent(100);
  const auto pending =
      store_.Get({pages_[0].Request(there), pages_[1].Request(absent)}, kTestTimeout);
  EXPECT_THAT(pending->Wait(), ElementsAre(GetOutcome::kCorrupt, GetOutcome::kNeverSeen));
  EXPECT_NE(there, pages_[0].payload);
  const StoreStats stats = store_.Stats();
  EXPECT_EQ(stats.get_corrupt, 1u);
  EXPECT_EQ(stats.get_hits, 0u);
  EXPECT_EQ(stats.bytes_read, 0u);
  EXPECT_EQ(stats.get_misses, 1u);
}

TEST_F(FaultInjectionStoreTest, Case_R06_AHungReadEndsAtItsDeadline) {
  PutPages(store_, pages_);
  store_.StrikeNext(Fault::kHangGet, 1);
  using enum GetOutcome;
  EXPECT_THAT(ReadPages(store_, pages_, std::chrono::milliseconds(1)),
              ElementsAre(kTimeout, kHit, kHit, kHit));
  EXPECT_EQ(store_.Stats().get_timeouts, 1u);
}

TEST_F(FaultInjectionStoreTest, AHungReadGoesOnWhenTheGateOpens) {
  PutPages(store_, pages_);
  store_.StrikeNext(Fault::kHangGet, 2);
  std::vector<GetOutcome> outcomes;
  std::thread reader([&] { outcomes = ReadPages(store_, pages_); });
  store_.AwaitHungGets(2);
  store_.ReleaseHungGets();
  reader.join();
  EXPECT_THAT(outcomes, Each(GetOutcome::kHit));
  EXPECT_EQ(outcomes.size(), pages_.size());
  EXPECT_EQ(store_.Stats().get_timeouts, 0u);
}

TEST_F(FaultInjectionStoreTest, AHungReadTimesOutWhenTheTestSaysSo) {
  PutPages(store_, pages_);
  store_.StrikeNext(Fault::kHangGet, 1);
  std::vector<GetOutcome> outcomes;
  std::thread reader([&] { outcomes = ReadPages(store_, pages_); });
  store_.AwaitHungGets(1);
  store_.TimeOutHungGets();
  store_.ReleaseHungGets();  // too late for this read
  reader.join();
  using enum GetOutcome;
  EXPECT_THAT(outcomes, ElementsAre(kTimeout, kHit, kHit, kHit));
}

TEST_F(FaultInjectionStoreTest, AnEarlierOpeningOfTheGateIsNotForLaterReads) {
  PutPages(store_, pages_);
  store_.ReleaseHungGets();
  store_.StrikeNext(Fault::kHangGet, 4);
  EXPECT_THAT(ReadPages(store_, pages_, std::chrono::milliseconds(1)), Each(GetOutcome::kTimeout));
}

TEST_F(FaultInjectionStoreTest, Case_R04_AHungReadCanBeAbandoned) {
  PutPage(store_, pages_[0]);
  store_.StrikeNext(Fault::kHangGet, 1);
  std::vector<uint8_t> payload(100, 0x5a);
  store_.Get({pages_[0].Request(payload)}, kTestTimeout).reset();  // or this test takes a minute
  store_.ReleaseHungGets();
  EXPECT_THAT(payload, Each(0x5a));
  EXPECT_EQ(ReadPage(store_, pages_[0]), GetOutcome::kHit);
}

TEST(FaultInjectionStore, EqualSeedsGiveEqualRunsAndOthersDoNot) {
  const auto pages = MakeTestPages(0, 400, 10);
  const auto outcomes = [&](uint64_t seed) {
    FakeClock clock;
    FaultInjectionStore store(
        std::make_unique<MemoryStore>(MemoryStoreOptions{.budget_bytes = 1 << 20}, &clock), seed);
    store.StrikeAtRandom(Fault::kFailPut, 0.3);
    return PutPages(store, pages);
  };
  const auto first = outcomes(1);
  EXPECT_EQ(outcomes(1), first);
  EXPECT_NE(outcomes(2), first);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(first, PutOutcome::kFailed)), 120, 40);
}

}  // namespace
}  // namespace emberkv
