#include "store/metering_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/fault_injection_store.h"
#include "store/memory_harness.h"
#include "store/store_contract_test.h"
#include "store/test_pages.h"

namespace emberkv {
namespace {

class MeteredHarness : public MemoryHarness {
 public:
  MeteredHarness()
      : MemoryHarness([](auto store, const Clock* clock) {
          return std::make_unique<MeteringStore>(std::move(store), clock);
        }) {}
};

INSTANTIATE_TYPED_TEST_SUITE_P(Metered, StoreContract, MeteredHarness);

// A store whose every operation takes as long as the test says.
class SlowStore : public KvStore {
 public:
  explicit SlowStore(FakeClock* clock) : clock_(clock) {}
  int64_t takes_us = 0;

  std::vector<PutOutcome> Put(std::span<const PageRecord> pages) override {
    clock_->Advance(takes_us);
    return std::vector<PutOutcome>(pages.size(), PutOutcome::kStored);
  }
  std::unique_ptr<PendingGet> Get(std::vector<GetRequest> requests,
                                  std::chrono::milliseconds /*timeout*/) override {
    class SlowGet : public PendingGet {
     public:
      SlowGet(FakeClock* clock, int64_t us, size_t n) : clock_(clock), us_(us), outcomes_(n) {}
      std::vector<GetOutcome> Wait() override {
        clock_->Advance(us_);
        return outcomes_;
      }

     private:
      FakeClock* const clock_;
      const int64_t us_;
      std::vector<GetOutcome> outcomes_;
    };
    return std::make_unique<SlowGet>(clock_, takes_us, requests.size());
  }
  std::vector<bool> Contains(std::span<const BlockHash> keys) override {
    clock_->Advance(takes_us);
    return std::vector<bool>(keys.size());
  }
  void Touch(std::span<const BlockHash> /*keys*/) override { clock_->Advance(takes_us); }
  Result<uint64_t> EraseTenant(const Digest& /*tenant*/) override {
    clock_->Advance(takes_us);
    return 0;
  }
  uint64_t Sweep() override {
    clock_->Advance(takes_us);
    return 0;
  }
  StoreStats Stats() override { return {.pages = 17}; }

 private:
  FakeClock* const clock_;
};

class MeteringStoreTest : public ::testing::Test {
 protected:
  MeteringStoreTest()
      : slow_(new SlowStore(&clock_)), store_(std::unique_ptr<KvStore>(slow_), &clock_) {}

  FakeClock clock_;
  SlowStore* slow_;  // owned by store_
  MeteringStore store_;
};

TEST_F(MeteringStoreTest, EachOperationHasItsOwnNumbers) {
  const auto pages = MakeTestPages(0, 3, 10);
  const auto keys = KeysOf(pages);
  slow_->takes_us = 100;
  PutPages(store_, pages);
  slow_->takes_us = 200;
  store_.Contains(keys);
  slow_->takes_us = 300;
  store_.Touch(keys);
  slow_->takes_us = 400;
  EXPECT_TRUE(store_.EraseTenant(TestTenant(1)).ok());
  slow_->takes_us = 500;
  store_.Sweep();

  const StoreMeter meter = store_.Meter();
  EXPECT_EQ(meter.put.total_us, 100u);
  EXPECT_EQ(meter.contains.total_us, 200u);
  EXPECT_EQ(meter.touch.total_us, 300u);
  EXPECT_EQ(meter.erase_tenant.total_us, 400u);
  EXPECT_EQ(meter.sweep.total_us, 500u);
  EXPECT_EQ(meter.get.calls, 0u);
  for (const OperationMeter* operation : {&meter.put, &meter.contains, &meter.touch}) {
    EXPECT_EQ(operation->calls, 1u);
    EXPECT_EQ(operation->items, 3u);
    EXPECT_EQ(operation->in_flight, 0u);
  }
  EXPECT_EQ(store_.Stats().pages, 17u);
}

TEST_F(MeteringStoreTest, LatenciesFallIntoPowersOfTwo) {
  for (const int64_t us : {0, 1, 2, 3, 4, 1023, 1024}) {
    slow_->takes_us = us;
    store_.Sweep();
  }
  slow_->takes_us = int64_t{1} << 40;
  store_.Sweep();
  const OperationMeter meter = store_.Meter().sweep;
  EXPECT_EQ(meter.buckets[0], 1u);   // 0
  EXPECT_EQ(meter.buckets[1], 1u);   // 1
  EXPECT_EQ(meter.buckets[2], 2u);   // 2, 3
  EXPECT_EQ(meter.buckets[3], 1u);   // 4
  EXPECT_EQ(meter.buckets[10], 1u);  // 1023
  EXPECT_EQ(meter.buckets[11], 1u);  // 1024
  EXPECT_EQ(meter.buckets.back(), 1u);
  EXPECT_EQ(meter.calls, 8u);
  EXPECT_EQ(meter.max_us, uint64_t{1} << 40);
}

TEST_F(MeteringStoreTest, AReadLastsUntilItsOutcomesAreThere) {
  const TestPage page = MakeTestPage(0, 10);
  std::vector<uint8_t> payload(10);
  slow_->takes_us = 50;
  auto pending = store_.Get({page.Request(payload)}, kTestTimeout);
  clock_.Advance(7);
  EXPECT_EQ(store_.Meter().get.in_flight, 1u);
  EXPECT_EQ(store_.Meter().get.calls, 0u);
  pending->Wait();
  clock_.Advance(1000);  // nobody waits for it any more
  pending.reset();
  EXPECT_EQ(store_.Meter().get.in_flight, 0u);
  EXPECT_EQ(store_.Meter().get.calls, 1u);
  EXPECT_EQ(store_.Meter().get.total_us, 57u);
}

TEST_F(MeteringStoreTest, Case_R04_AnAbandonedReadIsNotInFlightForEver) {
  const TestPage page = MakeTestPage(0, 10);
  std::vector<uint8_t> payload(10);
  store_.Get({page.Request(payload)}, kTestTimeout).reset();
  EXPECT_EQ(store_.Meter().get.in_flight, 0u);
  EXPECT_EQ(store_.Meter().get.calls, 1u);
}

}  // namespace
}  // namespace emberkv
