#include "cache/store_reader.h"

#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <thread>

#include "cache_fixture.h"

namespace emberkv {
namespace {

class StoreReaderTest : public ::testing::Test {
 protected:
  StoreReaderTest() {
    std::vector<uint8_t> bytes(kPageBytes);
    for (size_t i = 0; i < 3; ++i) {
      const BlockIdentity& block = prompt_.block(i);
      Compute(block.hash, bytes.data());
      const PageRecord record{block.hash, block.parent, {}, {}, block.tokens, bytes};
      store_.Put({&record, 1});
    }
    reader_.emplace(&store_, kPageBytes);
  }

  std::vector<PageHandle> Pages(size_t count) {
    std::vector<PageHandle> pages;
    for (size_t i = 0; i < count; ++i) {
      pages.push_back(std::move(pool_->AcquireUncleared()).value());
    }
    return pages;
  }

  FakeClock clock_;
  GatedStore store_{{.budget_bytes = 1 << 20}, &clock_};
  std::unique_ptr<PagePool> pool_ = MakePool(8);
  const Prompt prompt_{1, 4};
  std::optional<StoreReader> reader_;
};

TEST_F(StoreReaderTest, GivesPagesOfHitsOnly) {
  StoreRead read = reader_->Read(prompt_.chain(), Pages(4), kForever);
  using enum GetOutcome;
  EXPECT_EQ(read.outcomes, (std::vector<GetOutcome>{kHit, kHit, kHit, kNeverSeen}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(IsPageOf(prompt_.block(i).hash, read.pages[i].bytes()));
  }
  EXPECT_FALSE(read.pages[3]);
  EXPECT_EQ(pool_->stats().pages_in_use, 3u);
}

TEST_F(StoreReaderTest, TellsWhyABlockIsMissingWithoutAPage) {
  EXPECT_EQ(reader_->ReasonOfMiss(prompt_.block(3), kForever), GetOutcome::kNeverSeen);
  EXPECT_EQ(reader_->ReasonOfMiss(prompt_.block(0), kForever), GetOutcome::kHit);
  EXPECT_EQ(pool_->stats().high_water_pages, 0u);
}

TEST_F(StoreReaderTest, AnOverdueReadHoldsWhatTheStoreMayTouch) {
  store_.MakeReadsOverdue();
  {
    // The tokens end with the caller; the read goes on.
    const Prompt caller(1, 2);
    const StoreRead read = reader_->Read(caller.chain(), Pages(2), kForever);
    EXPECT_EQ(read.outcomes, std::vector<GetOutcome>(2, GetOutcome::kTimeout));
  }
  EXPECT_EQ(reader_->ReasonOfMiss(prompt_.block(3), kForever), GetOutcome::kTimeout);
  EXPECT_TRUE(reader_->is_hung());
  EXPECT_EQ(reader_->num_overdue(), 2u);
  EXPECT_EQ(pool_->stats().pages_in_use, 2u);
  store_.LetOverdueReadsEnd();
  reader_.reset();
  EXPECT_EQ(pool_->stats().pages_in_use, 0u);
}

TEST_F(StoreReaderTest, TellsWhatIsThere) {
  const std::vector<BlockHash> keys = {prompt_.block(0).hash, prompt_.block(3).hash};
  EXPECT_EQ(reader_->Contains(keys, kForever), (std::vector<bool>{true, false}));
}

TEST_F(StoreReaderTest, Case_R06_AReadThatDoesNotEvenStartCostsTheDeadline) {
  store_.CloseGets();
  const StoreRead read = reader_->Read(prompt_.chain().first(2), Pages(2), std::chrono::milliseconds(1));
  EXPECT_EQ(read.outcomes, std::vector<GetOutcome>(2, GetOutcome::kTimeout));
  EXPECT_EQ(reader_->num_overdue(), 1u);
  EXPECT_EQ(pool_->stats().pages_in_use, 2u) << "the store may still write to them";
  store_.OpenGets();
  reader_.reset();
  EXPECT_EQ(pool_->stats().pages_in_use, 0u);
}

// A store whose index hangs.
class HungLookupStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  std::vector<bool> Contains(std::span<const BlockHash> keys) override {
    goes_on.wait();
    return MemoryStore::Contains(keys);
  }
  std::latch goes_on{1};
};

TEST_F(StoreReaderTest, Case_R06_AHungLookupCostsTheDeadlineAndOpensTheBreaker) {
  HungLookupStore store({.budget_bytes = 1 << 20}, &clock_);
  StoreReader reader(&store, kPageBytes);
  EXPECT_EQ(reader.Contains({prompt_.block(0).hash}, std::chrono::milliseconds(1)), std::nullopt);
  EXPECT_TRUE(reader.is_hung());
  EXPECT_EQ(reader.ReasonOfMiss(prompt_.block(0), kForever), GetOutcome::kNeverSeen) << "another thread asks";
  store.goes_on.count_down();
  while (reader.is_hung()) std::this_thread::yield();
  EXPECT_EQ(reader.Contains({prompt_.block(0).hash}, kForever), std::vector<bool>{false});
}

}  // namespace
}  // namespace emberkv
