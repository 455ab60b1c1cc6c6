#include "cache/write_behind.h"

#include <gtest/gtest.h>

#include <optional>

#include "cache_fixture.h"

namespace emberkv {
namespace {

class WriteBehindTest : public ::testing::Test {
 protected:
  void Make(size_t max_queued_pages, size_t batch_pages) {
    writer_.emplace(&store_, kPageBytes, max_queued_pages, batch_pages);
  }
  bool Push(size_t block) {
    PageHandle page = std::move(pool_->Acquire()).value();
    Compute(prompt_.block(block).hash, page.bytes());
    return writer_->Push(std::move(page), prompt_.block(block), Sha256("tenant"));
  }

  FakeClock clock_;
  GatedStore store_{{.budget_bytes = 1 << 20}, &clock_};
  std::unique_ptr<PagePool> pool_ = MakePool(16);
  const Prompt prompt_{1, 16};
  std::optional<WriteBehind> writer_;
};

TEST_F(WriteBehindTest, StoresWhatIsPushedUnderItsTenant) {
  Make(16, 4);
  for (size_t i = 0; i < 6; ++i) ASSERT_TRUE(Push(i));
  ASSERT_TRUE(writer_->Flush(kForever));
  const WriteBehindStats stats = writer_->stats();
  EXPECT_EQ(stats.offered, 6u);
  EXPECT_EQ(stats.queued_pages, 0u);
  EXPECT_EQ(stats.outcomes[static_cast<size_t>(PutOutcome::kStored)], 6u);
  EXPECT_EQ(pool_->stats().pages_in_use, 0u);
  EXPECT_EQ(*store_.EraseTenant(Sha256("tenant")), 6u);
}

TEST_F(WriteBehindTest, AFullQueueDropsAndCountsAndNeverBlocks) {
  Make(3, 2);
  store_.ClosePuts();
  ASSERT_TRUE(Push(0));
  store_.AwaitPut();
  EXPECT_TRUE(Push(1));
  EXPECT_TRUE(Push(2));
  EXPECT_FALSE(Push(3)) << "two wait and one is being written";
  EXPECT_EQ(writer_->stats().dropped, 1u);
  EXPECT_EQ(writer_->stats().queued_pages, 3u);
  EXPECT_EQ(pool_->stats().pages_in_use, 3u);
  EXPECT_FALSE(writer_->Flush(std::chrono::milliseconds(0)));
  store_.OpenPuts();
  ASSERT_TRUE(writer_->Flush(kForever));
  EXPECT_EQ(store_.Stats().puts_stored, 3u);
  EXPECT_TRUE(Push(3));
}

TEST_F(WriteBehindTest, ItsEndFinishesTheBatchAndLetsGoOfTheRest) {
  Make(8, 1);
  store_.ClosePuts();
  ASSERT_TRUE(Push(0));
  store_.AwaitPut();
  ASSERT_TRUE(Push(1));
  std::thread opener([this] { store_.OpenPuts(); });
  writer_.reset();
  opener.join();
  EXPECT_EQ(pool_->stats().pages_in_use, 0u);
  const BlockHash first = prompt_.block(0).hash;
  EXPECT_TRUE(store_.Contains({&first, 1})[0]);
}

}  // namespace
}  // namespace emberkv
