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
  PageEntry page = SomeEntry(9, -5);
  page.retention_us = 3600;
  EXPECT_EQ(*DecodePageEntry(EncodePageEntry(page)), page);

  SegmentEntry segment{.segment = 12, .filled_slots = 99, .generation = 3, .by_deadline = {}};
  EXPECT_EQ(*DecodeSegmentEntry(12, EncodeSegmentEntry(segment)), segment);
  segment.by_deadline = {{10, {.pages = 1, .bytes = 4096}}, {20, {.pages = 7, .bytes = 70'000}}};
  EXPECT_EQ(*DecodeSegmentEntry(12, EncodeSegmentEntry(segment)), segment);

  const TenantEntry tenant{
      .tenant = Sha256("t"), .longest_retention_us = 3600, .by_deadline = segment.by_deadline};
  EXPECT_EQ(*DecodeTenantEntry(Sha256("t"), EncodeTenantEntry(tenant)), tenant);

  const MissRow miss{.number = 4, .serial = 9, .reason = GetOutcome::kQuarantined, .key = Sha256("k")};
  EXPECT_EQ(*DecodeMissRow(4, EncodeMissRow(miss)), miss);

  const DurableMoment moment{.durable_us = 1, .wall_us = -2, .monotonic_us = 3, .boot_id = "boot"};
  EXPECT_EQ(*DecodeMoment(EncodeMoment(moment)), moment);
}

TEST(StoreIndexRows, ThePagesOwnRetentionIsThereOrNot) {
  const PageEntry usual = SomeEntry(9, 77);
  PageEntry own = usual;
  own.retention_us = 5;
  std::string page = EncodePageEntry(own);
  EXPECT_EQ(page.size(), EncodePageEntry(usual).size() + 8);
  EXPECT_FALSE(DecodePageEntry(page.substr(0, page.size() - 8)).ok());
  page[0] = EncodePageEntry(usual)[0];
  EXPECT_FALSE(DecodePageEntry(page).ok());
  EXPECT_EQ(*DecodePageEntry(page.substr(0, page.size() - 8)), usual);
  for (const int64_t none : {int64_t{-1}, kMaxRetention.count() + 1}) {
    own.retention_us = none;
    EXPECT_FALSE(DecodePageEntry(EncodePageEntry(own)).ok());
  }
}

TEST(StoreIndexRows, DamagedAndForeignRowsAreRefused) {
  SegmentEntry segment{.segment = 1, .filled_slots = 9, .generation = 3, .by_deadline = {{10, {1, 4096}}}};
  const TenantEntry tenant{.tenant = {}, .longest_retention_us = 5, .by_deadline = {{10, {1, 4096}}}};
  const MissRow miss{.number = 4, .serial = 9, .reason = GetOutcome::kExpired, .key = {}};
  const std::vector<std::string> rows = {EncodePageEntry(SomeEntry(9)), EncodeSegmentEntry(segment),
                                         EncodeTenantEntry(tenant), EncodeMissRow(miss)};
  const auto is_refused = [](size_t kind, const std::string& row) {
    if (kind == 3) return !DecodeMissRow(4, row).ok();
    if (kind == 2) return !DecodeTenantEntry({}, row).ok();
    return kind == 0 ? !DecodePageEntry(row).ok() : !DecodeSegmentEntry(1, row).ok();
  };
  for (size_t kind = 0; kind < rows.size(); ++kind) {
    EXPECT_FALSE(is_refused(kind, rows[kind]));
    EXPECT_TRUE(is_refused(kind, ""));
    EXPECT_TRUE(is_refused(kind, rows[kind].substr(0, rows[kind].size() - 1)));
    EXPECT_TRUE(is_refused(kind, rows[kind] + "x"));
    std::string later = rows[kind];
    later[0] = 3;  // a version of tomorrow
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
  extend.PromisePage(Sha256("a"), SomeEntry(0, 10), 30, 0);
  extend.RemovePage(Sha256("b"), SomeEntry(28, 10));
  Commit(extend);
  EXPECT_EQ(book_.promised_bytes(20), record);
  EXPECT_EQ(book_.pages(), 2u);
  EXPECT_EQ(index_->Segments()->front(), book_.segments().at(1));
}

TEST_F(StoreIndexTest, TenantsKnowTheirPagesByDeadline) {
  const Digest tenant = Sha256("somebody");
  PageEntry own = SomeEntry(28, 20, 2);
  own.retention_us = 500;
  BookEdit add(&book_);
  add.AddPage(Sha256("a"), SomeEntry(0, 10));
  add.AddPage(Sha256("b"), own);
  Commit(add);
  const uint64_t record = RecordBytes(128, 113'920);
  EXPECT_EQ(book_.promised_bytes(tenant, 9), 2 * record);
  EXPECT_EQ(book_.promised_bytes(tenant, 10), record);
  EXPECT_EQ(book_.promised_bytes(Sha256("nobody"), 9), 0u);
  EXPECT_EQ(book_.tenant_sums(10).front().pages, 2u);
  EXPECT_EQ(book_.tenants().at(tenant).longest_retention_us, 500);
  EXPECT_THAT(*index_->Tenants(), ::testing::ElementsAre(book_.tenants().at(tenant)));

  BookEdit promise(&book_);
  promise.PromisePage(Sha256("a"), SomeEntry(0, 10), 30, 7);
  promise.MovePage(Sha256("b"), own, {.segment = 1, .slot = 56, .generation = 7});
  Commit(promise);
  EXPECT_EQ(book_.promised_bytes(tenant, 10), 2 * record);
  EXPECT_EQ(index_->Find(std::vector{Sha256("a")}).front()->retention_us, 7);
  EXPECT_EQ(index_->Find(std::vector{Sha256("b")}).front()->retention_us, 500);
  EXPECT_THAT(*index_->Tenants(), ::testing::ElementsAre(book_.tenants().at(tenant)));
}

TEST_F(StoreIndexTest, TheLastUseIsNotTakenForLaterThanItWas) {
  EXPECT_EQ(book_.last_use_us(100), 0);
  BookEdit usual(&book_);
  usual.AddPage(Sha256("a"), SomeEntry(0, 130));  // used at 30
  Commit(usual);
  EXPECT_EQ(book_.last_use_us(100), 30);
  PageEntry own = SomeEntry(28, 540);  // at 40
  own.retention_us = 500;
  BookEdit longer(&book_);
  longer.AddPage(Sha256("b"), own);
  Commit(longer);
  EXPECT_EQ(book_.last_use_us(100), 40);
  BookEdit remove(&book_);
  remove.RemovePage(Sha256("b"), own);
  Commit(remove);
  EXPECT_LE(book_.last_use_us(100), 30) << "the page that is left may have had it as well";
}

TEST_F(StoreIndexTest, ATenantWithoutPagesLeavesNoRow) {
  BookEdit add(&book_);
  add.AddPage(Sha256("a"), SomeEntry(0));
  Commit(add);
  BookEdit remove(&book_);
  remove.RemovePage(Sha256("a"), SomeEntry(0));
  Commit(remove);
  EXPECT_TRUE(index_->Tenants()->empty());
  EXPECT_TRUE(book_.tenants().empty());
}

TEST_F(StoreIndexTest, KeepsWhyPagesAreMissing) {
  const MissRow one{.number = 0, .serial = 6, .reason = GetOutcome::kExpired, .key = Sha256("one")};
  MissRow two{.number = 300, .serial = 300, .reason = GetOutcome::kRefused, .key = Sha256("two")};
  IndexBatch put;
  put.PutMiss(one);
  put.PutMiss(two);
  ASSERT_TRUE(index_->Commit(put).ok());
  Reopen();
  EXPECT_THAT(*index_->Misses(), ::testing::ElementsAre(one, two));
  two.reason = GetOutcome::kNeverSeen;
  IndexBatch remove;
  remove.PutMiss(two);
  ASSERT_TRUE(index_->Commit(remove).ok());
  EXPECT_THAT(*index_->Misses(), ::testing::ElementsAre(one));
}

TEST_F(StoreIndexTest, DiskBytesSeesItsFiles) {
  EXPECT_GT(index_->DiskBytes(), 0u);
  EXPECT_LT(index_->DiskBytes(), uint64_t{8} << 20);
}

}  // namespace
}  // namespace emberkv
