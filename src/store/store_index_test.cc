#include "store/store_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/local_test_medium.h"
#include "store/segment_book.h"

namespace emberkv {
namespace {

PageEntry SomeEntry(uint32_t slot, int64_t deadline_us = 1000, uint32_t segment = 1) {
  return {.place = {.segment = segment, .slot = slot, .generation = 7},
          .num_tokens = 128,
          .payload_bytes = 113'920,
          .deadline_us = deadline_us,
          .tenant = Sha256("somebody")};
}

TEST(StoreIndexRows, DecodingGivesBackWhatWasEncoded) {
  const PageEntry page = SomeEntry(9, -5);
  EXPECT_EQ(*DecodePageEntry(EncodePageEntry(page)), page);

  SegmentEntry segment{.segment = 12, .filled_slots = 99, .generation = 3, .by_deadline = {}};
  EXPECT_EQ(*DecodeSegmentEntry(12, EncodeSegmentEntry(segment)), segment);
  segment.by_deadline = {{10, {.pages = 1, .bytes = 4096}}, {20, {.pages = 7, .bytes = 70'000}}};
  EXPECT_EQ(*DecodeSegmentEntry(12, EncodeSegmentEntry(segment)), segment);

  const DurableMoment moment{.durable_us = 1, .wall_us = -2, .monotonic_us = 3, .boot_id = "boot"};
  EXPECT_EQ(*DecodeMoment(EncodeMoment(moment)), moment);
}

TEST(StoreIndexRows, DamagedAndForeignRowsAreRefused) {
  SegmentEntry segment{.segment = 1, .filled_slots = 9, .generation = 3, .by_deadline = {{10, {1, 4096}}}};
  const std::vector<std::string> rows = {EncodePageEntry(SomeEntry(9)), EncodeSegmentEntry(segment)};
  const auto is_refused = [](size_t kind, const std::string& row) {
    return kind == 0 ? !DecodePageEntry(row).ok() : !DecodeSegmentEntry(1, row).ok();
  };
  for (size_t kind = 0; kind < rows.size(); ++kind) {
    EXPECT_FALSE(is_refused(kind, rows[kind]));
    EXPECT_TRUE(is_refused(kind, ""));
    EXPECT_TRUE(is_refused(kind, rows[kind].substr(0, rows[kind].size() - 1)));
    EXPECT_TRUE(is_refused(kind, rows[kind] + "x"));
    std::string later = rows[kind];
    later[0] = 2;  // a version of tomorrow
    EXPECT_TRUE(is_refused(kind, later));
  }
  EXPECT_FALSE(DecodeMoment("").ok());
  EXPECT_FALSE(DecodeMoment(EncodeMoment({}).substr(0, 20)).ok());
}

class StoreIndexTest : public ::testing::Test {
 protected:
  StoreIndexTest() { Reopen(); }

  void Reopen() {
    index_.reset();
    index_ = StoreIndex::Open(directory_.path() + "/index").value();
  }
  void Commit(BookEdit& edit) {
    ASSERT_TRUE(index_->Commit(edit.Batch()).ok());
    edit.Apply(&book_);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<StoreIndex> index_;
  SegmentBook book_;
};

TEST_F(StoreIndexTest, WhatIsCommittedIsThereAfterReopening) {
  const BlockHash one = Sha256("one"), two = Sha256("two"), three = Sha256("three");
  BookEdit edit(&book_);
  edit.AddPage(one, SomeEntry(0));
  edit.AddPage(two, SomeEntry(28));
  edit.AddPage(three, SomeEntry(0, 1000, 2));
  edit.Batch().PutMoment({.durable_us = 77, .wall_us = 0, .monotonic_us = 0, .boot_id = "b"});
  Commit(edit);
  Reopen();
  const std::vector<BlockHash> keys = {two, Sha256("none"), one};
  const auto found = index_->Find(keys);
  EXPECT_EQ(found[0], SomeEntry(28));
  EXPECT_EQ(found[1], std::nullopt);
  EXPECT_EQ(found[2], SomeEntry(0));
  EXPECT_EQ(index_->PagesOfSegment(1)->size(), 2u);
  EXPECT_EQ(index_->PagesOfSegment(2)->front().first, three);
  EXPECT_TRUE(index_->PagesOfSegment(3)->empty());
  EXPECT_EQ(index_->PagesOfTenant(Sha256("somebody"))->size(), 3u);
  EXPECT_TRUE(index_->PagesOfTenant(Sha256("nobody"))->empty());
  EXPECT_EQ((*index_->Moment())->durable_us, 77);
  EXPECT_EQ(index_->Segments()->size(), 2u);
  EXPECT_EQ(index_->PagesAfter({}, 2)->size(), 2u);
  EXPECT_EQ(index_->PagesAfter(index_->PagesAfter({}, 2)->back().first, 10)->size(), 1u);
}

TEST_F(StoreIndexTest, AMovedPageLeavesNothingBehind) {
  const BlockHash key = Sha256("one");
  BookEdit add(&book_);
  add.AddPage(key, SomeEntry(0));
  Commit(add);
  BookEdit move(&book_);
  move.MovePage(key, SomeEntry(0), {.segment = 2, .slot = 56, .generation = 1});
  Commit(move);
  EXPECT_TRUE(index_->PagesOfSegment(1)->empty());
  EXPECT_EQ(index_->PagesOfSegment(2)->size(), 1u);
  EXPECT_EQ(index_->PagesOfTenant(Sha256("somebody"))->size(), 1u);
  EXPECT_EQ(book_.segments().at(1).pages(), 0u);
  EXPECT_EQ(book_.segments().at(2).pages(), 1u);
}

TEST_F(StoreIndexTest, SegmentsKnowTheirPagesByDeadline) {
  BookEdit edit(&book_);
  edit.AddPage(Sha256("a"), SomeEntry(0, 10));
  edit.AddPage(Sha256("b"), SomeEntry(28, 10));
  edit.AddPage(Sha256("c"), SomeEntry(56, 20));
  Commit(edit);
  const uint64_t record = RecordBytes(128, 113'920);
  EXPECT_EQ(book_.promised_bytes(9), 3 * record);
  EXPECT_EQ(book_.promised_bytes(10), record);
  EXPECT_EQ(book_.promised_bytes(20), 0u);
  EXPECT_EQ(book_.segments().at(1).filled_slots, 84u);

  BookEdit extend(&book_);
  extend.ExtendPage(Sha256("a"), SomeEntry(0, 10), 30);
  extend.RemovePage(Sha256("b"), SomeEntry(28, 10));
  Commit(extend);
  EXPECT_EQ(book_.promised_bytes(20), record);
  EXPECT_EQ(book_.pages(), 2u);
  EXPECT_EQ(book_.last_deadline_us(), 30);
  EXPECT_EQ(index_->Segments()->front(), book_.segments().at(1));
}

TEST_F(StoreIndexTest, DiskBytesSeesItsFiles) {
  EXPECT_GT(index_->DiskBytes(), 0u);
  EXPECT_LT(index_->DiskBytes(), uint64_t{8} << 20);
}

}  // namespace
}  // namespace emberkv
