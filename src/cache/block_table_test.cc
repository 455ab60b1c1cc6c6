#include "cache/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

class BlockTableTest : public ::testing::Test {
 protected:
  static constexpr int kBlock = 16;

  std::unique_ptr<PagePool> pool_ = std::move(PagePool::Make(64, 4 * 64)).value();
};

TEST_F(BlockTableTest, HoldsOnePagePerBegunBlock) {
  BlockTable table(pool_.get(), kBlock);
  for (const auto& [tokens, pages] : {std::pair{0, 0}, {1, 1}, {16, 1}, {17, 2}, {48, 3}}) {
    ASSERT_TRUE(table.Reserve(tokens).ok());
    EXPECT_EQ(table.num_pages(), static_cast<size_t>(pages)) << tokens;
    EXPECT_EQ(pool_->stats().pages_in_use, static_cast<size_t>(pages)) << tokens;
  }
}

TEST_F(BlockTableTest, GrowingKeepsThePagesAndWhatIsInThem) {
  BlockTable table(pool_.get(), kBlock);
  ASSERT_TRUE(table.Reserve(10).ok());
  uint8_t* const first = table.writable_pages()[0];
  first[3] = 7;
  ASSERT_TRUE(table.Reserve(40).ok());
  EXPECT_EQ(table.writable_pages()[0], first);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(table.pages()[i], table.writable_pages()[i]);
  EXPECT_EQ(table.pages()[0][3], 7);
}

TEST_F(BlockTableTest, AFailedReserveLeavesTheTableAsItWas) {
  BlockTable other(pool_.get(), kBlock);
  ASSERT_TRUE(other.Reserve(kBlock).ok());
  BlockTable table(pool_.get(), kBlock);
  ASSERT_TRUE(table.Reserve(kBlock).ok());
  const uint8_t* const first = table.pages()[0];
  const Status status = table.Reserve(4 * kBlock);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("64 tokens need 4 pages and hold 1"));
  EXPECT_EQ(table.num_pages(), 1u);
  EXPECT_EQ(table.pages()[0], first);
  EXPECT_EQ(pool_->stats().pages_in_use, 2u);
  EXPECT_TRUE(table.Reserve(3 * kBlock).ok());
}

TEST_F(BlockTableTest, TrimLetsGoOfPagesBeyondTheTokens) {
  BlockTable table(pool_.get(), kBlock);
  ASSERT_TRUE(table.Reserve(4 * kBlock).ok());
  table.Trim(kBlock + 1);
  EXPECT_EQ(table.num_pages(), 2u);
  EXPECT_EQ(pool_->stats().pages_in_use, 2u);
  table.Trim(3 * kBlock);  // never grows
  EXPECT_EQ(table.num_pages(), 2u);
}

TEST_F(BlockTableTest, GivesItsPagesBackAtItsEnd) {
  {
    BlockTable table(pool_.get(), kBlock);
    ASSERT_TRUE(table.Reserve(4 * kBlock).ok());
  }
  EXPECT_EQ(pool_->stats().pages_in_use, 0u);
}

TEST_F(BlockTableTest, Case_B07_SharedPagesCanBeReadAndNotWritten) {
  PageHandle hit = std::move(pool_->Acquire()).value();
  PageHandle resident = std::move(pool_->Acquire()).value();
  const uint8_t* const hit_bytes = hit.bytes();
  const uint8_t* const resident_bytes = resident.bytes();
  BlockTable table(pool_.get(), kBlock);
  table.AppendShared(std::move(hit));
  ASSERT_TRUE(table.Reserve(3 * kBlock).ok());
  EXPECT_EQ(pool_->stats().pages_in_use, 4u);
  table.ReplaceShared(1, std::move(resident));
  EXPECT_EQ(pool_->stats().pages_in_use, 3u) << "the replaced page is free";
  EXPECT_EQ(table.pages()[0], hit_bytes);
  EXPECT_EQ(table.pages()[1], resident_bytes);
  EXPECT_EQ(table.page(1).bytes(), resident_bytes);
  EXPECT_EQ(table.writable_pages()[0], nullptr);
  EXPECT_EQ(table.writable_pages()[1], nullptr);
  EXPECT_EQ(table.writable_pages()[2], table.pages()[2]);
}

}  // namespace
}  // namespace emberkv
