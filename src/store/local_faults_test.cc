// Faults of the medium: the store gets slower or holds less, and never serves wrong bytes.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <latch>
#include <string_view>
#include <system_error>
#include <thread>

#include "store/local_harness.h"

namespace emberkv {
namespace {

using ::testing::Each;
using enum GetOutcome;

constexpr size_t kPayload = LocalHarness::kPayloadBytes;

// A record of one slot holds this much besides its head.
constexpr size_t kOneSlotPayload = kSlotBytes - RecordHeadBytes(128) - 40;

TEST(LocalStoreFaults, Case_W07_NoFlippedByteIsEverServed) {
  LocalHarness harness(uint64_t{64} << 20, uint64_t{8} << 20);
  // One stored page for each byte of a record.
  const auto pages = MakeTestPages(1, kSlotBytes, kOneSlotPayload);
  ASSERT_THAT(PutPages(harness.store(), pages), Each(PutOutcome::kStored));
  const auto stored = harness.local().List({}, 2 * kSlotBytes);
  ASSERT_TRUE(stored.ok());
  ASSERT_EQ(stored->size(), kSlotBytes);
  for (size_t i = 0; i < stored->size(); ++i) {
    const PageEntry& entry = (*stored)[i].second;
    ASSERT_EQ(entry.record_bytes(), kSlotBytes);
    StoredBytes(harness.directory(), entry.place).Flip(i, static_cast<uint8_t>(1u << i % 8));
  }
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kCorrupt));
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kQuarantined));
  EXPECT_EQ(harness.store().Stats().get_corrupt, kSlotBytes);
}

TEST(LocalStoreFaults, ZeroedSwappedAndStaleRecordsAreNotServed) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 5, kPayload);
  PutPages(harness.store(), pages);
  const uint64_t bytes = RecordBytes(128, kPayload);
  const PageEntry zeroed = harness.EntryOf(pages[0].key);
  StoredBytes(harness.directory(), zeroed.place).Write(std::vector<uint8_t>(bytes));

  const StoredBytes one(harness.directory(), harness.EntryOf(pages[1].key).place);
  const StoredBytes other(harness.directory(), harness.EntryOf(pages[2].key).place);
  const auto record_of_one = one.Read(bytes);
  one.Write(other.Read(bytes));
  other.Write(record_of_one);

  // A torn write: the first half is this record, the rest is what was there before.
  const PageEntry torn = harness.EntryOf(pages[3].key);
  StoredBytes(harness.directory(), torn.place).Write(std::vector<uint8_t>(bytes / 2, 0xee), bytes / 2);
  EXPECT_THAT(ReadPages(harness.store(), pages),
              ::testing::ElementsAre(kCorrupt, kCorrupt, kCorrupt, kCorrupt, kHit));

  // The record of an earlier generation of the segment, sound in itself, at its old place.
  const PageEntry entry = harness.EntryOf(pages[4].key);
  const auto stale = StoredBytes(harness.directory(), entry.place).Read(bytes);
  RecordPlace later = entry.place;
  later.generation += 1;
  EXPECT_TRUE(ParseRecord(stale, entry.place).ok());
  EXPECT_FALSE(ParseRecord(stale, later).ok());
}

TEST(LocalStoreFaults, Case_W06_ATruncatedSegmentLosesWhatIsCutOffAndNothingElse) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 3, kPayload);
  PutPages(harness.store(), pages);
  const PageEntry last = harness.EntryOf(pages[2].key);
  std::filesystem::resize_file(SegmentPath(harness.directory(), last.place.segment),
                               last.place.offset() + 5000);
  EXPECT_THAT(ReadPages(harness.store(), pages), ::testing::ElementsAre(kHit, kHit, kCorrupt));
  harness.Reopen(Reboot::kNo);
  EXPECT_THAT(ReadPages(harness.store(), {pages.data(), 2}), Each(kHit));
}

// Nothing is visible while writing fails, and everything works again afterwards.
void ExpectFailingPuts(LocalHarness& harness, std::atomic<int>& fault, int error) {
  const auto before = MakeTestPages(1, 4, kPayload);
  const auto during = MakeTestPages(100, 40, kPayload);
  PutPages(harness.store(), before);
  fault = error;
  for (int i = 0; i < 3; ++i) {
    for (const PutOutcome outcome : PutPages(harness.store(), during)) {
      EXPECT_THAT(outcome, ::testing::AnyOf(PutOutcome::kFailed, PutOutcome::kStored, PutOutcome::kAlreadyThere));
    }
  }
  const auto outcomes = PutPages(harness.store(), during);
  EXPECT_THAT(outcomes, ::testing::Contains(PutOutcome::kFailed));
  for (size_t i = 0; i < during.size(); ++i) {
    const bool is_there = harness.store().Contains({&during[i].key, 1}).front();
    EXPECT_EQ(is_there, outcomes[i] != PutOutcome::kFailed);
  }
  EXPECT_THAT(ReadPages(harness.store(), before), Each(kHit));
  fault = 0;
  EXPECT_THAT(PutPages(harness.store(), during), ::testing::Not(::testing::Contains(PutOutcome::kFailed)));
  harness.Reopen(Reboot::kNo);
  EXPECT_THAT(ReadPages(harness.store(), before), Each(kHit));
  EXPECT_THAT(ReadPages(harness.store(), during), Each(kHit));
}

TEST(LocalStoreFaults, Case_W03_FailedWritesLeaveNoVisiblePage) {
  for (const int error : {ENOSPC, EIO}) {
    LocalHarness harness;
    ExpectFailingPuts(harness, harness.io().write_error, error);
  }
}

TEST(LocalStoreFaults, Case_W03_FailedSyncsLeaveNoVisiblePage) {
  LocalHarness harness;
  ExpectFailingPuts(harness, harness.io().sync_error, EIO);
}

// What a failed sync was for may be lost although a later sync of the same file succeeds: nothing that was
// written to the segment by then is acknowledged.
TEST(LocalStoreFaults, Case_W03_AFailedSyncCondemnsWhatFollowedItIntoTheSegment) {
  LocalHarness harness(uint64_t{64} << 20, uint64_t{8} << 20);
  const auto pages = MakeTestPages(1, 768, kOneSlotPayload);  // three groups, one segment
  harness.io().written_before_sync_fails = pages.size() * kSlotBytes;
  PutPage(harness.store(), MakeTestPage(5000, kOneSlotPayload));  // makes the segment
  harness.io().bytes_written = 0;
  harness.io().syncs_to_fail = 1;
  EXPECT_THAT(PutPages(harness.store(), pages), Each(PutOutcome::kFailed));
  EXPECT_EQ(harness.io().syncs_to_fail, 0);
  EXPECT_THAT(harness.store().Contains(KeysOf(pages)), Each(false));
  EXPECT_THAT(PutPages(harness.store(), pages), Each(PutOutcome::kStored));
  harness.Reopen(Reboot::kNo);
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kHit));
}

TEST(LocalStoreFaults, Case_W03_ADiskWithoutRoomForASegmentFailsPuts) {
  LocalHarness harness;
  ExpectFailingPuts(harness, harness.io().allocate_error, ENOSPC);
}

TEST(LocalStoreFaults, FilesThatCannotBeOpenedFailPutsAndReads) {
  for (const int error : {EMFILE, EACCES, EROFS}) {
    LocalHarness harness;
    const auto pages = MakeTestPages(1, 3, kPayload);
    PutPages(harness.store(), pages);
    harness.Reopen(Reboot::kNo);
    harness.io().open_error = error;
    EXPECT_THAT(ReadPages(harness.store(), pages), Each(kFailed));
    EXPECT_EQ(PutPage(harness.store(), MakeTestPage(9, kPayload)), PutOutcome::kFailed);
    harness.io().open_error = 0;
    EXPECT_THAT(ReadPages(harness.store(), pages), Each(kHit));
    EXPECT_EQ(PutPage(harness.store(), MakeTestPage(9, kPayload)), PutOutcome::kStored);
  }
}

TEST(LocalStoreFaults, ReadErrorsAreNotCorruption) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 30, kPayload);
  PutPages(harness.store(), pages);
  harness.io().read_error = EIO;
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kFailed));
  EXPECT_EQ(harness.local().Scrub(1 << 20).failed, pages.size());
  harness.io().read_error = 0;
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kHit));
  EXPECT_EQ(harness.store().Stats().get_failed, pages.size());
  EXPECT_EQ(harness.store().Stats().quarantined, 0u);
}

TEST(LocalStoreFaults, Case_R06_AHungDiskCostsTheDeadlineAndNoMore) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 60, kPayload);
  PutPages(harness.store(), pages);
  harness.io().holds_reads = true;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(ReadPages(harness.store(), pages, std::chrono::milliseconds(50)), Each(kTimeout));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  harness.io().Release();
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kHit));
  EXPECT_EQ(harness.store().Stats().get_timeouts, pages.size());
}

// A commit of the index that hangs, as seen by everybody else: what is there is served, what is counted is told.
TEST(LocalStoreFaults, Case_R06_AHungWriteStopsNeitherReadsNorCounts) {
  LocalHarness harness;
  std::latch is_hung(1), goes_on(1);
  std::atomic<bool> hangs{false};
  harness.options().failpoint = [&](std::string_view point) {
    if (point != "put.after_index" || !hangs.exchange(false)) return;
    is_hung.count_down();
    goes_on.wait();
  };
  harness.Reopen(Reboot::kNo);
  const auto pages = MakeTestPages(1, 4, kPayload);
  PutPages(harness.store(), pages);
  hangs = true;
  std::thread writer([&] { PutPage(harness.store(), MakeTestPage(100, kPayload)); });
  is_hung.wait();
  EXPECT_THAT(harness.store().Contains(KeysOf(pages)), Each(true));
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kHit));
  EXPECT_EQ(ReadPage(harness.store(), MakeTestPage(200, kPayload)), kNeverSeen);
  EXPECT_EQ(harness.store().Stats().get_hits, pages.size());
  goes_on.count_down();
  writer.join();
  EXPECT_EQ(harness.store().Stats().puts_stored, pages.size() + 1);
}

TEST(LocalStoreFaults, Case_R06_HungReadsDoNotPileUpWithoutEnd) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 20, kPayload);
  PutPages(harness.store(), pages);
  harness.io().holds_reads = true;
  for (int i = 0; i < 60; ++i) {  // 1,200 reads, more than are ever under way
    EXPECT_THAT(ReadPages(harness.store(), pages, std::chrono::milliseconds(1)), Each(kTimeout));
  }
  harness.io().Release();
  harness.io().Drain();
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(kHit));
}

// A read that hangs while its page expires and all space is wanted: its segment is not written meanwhile.
TEST(LocalStoreFaults, Case_W05_ASlowReadKeepsItsSegment) {
  LocalHarness harness;
  const auto old = MakeTestPages(1, 3, kPayload);
  PutPages(harness.store(), old);
  const PageEntry entry = harness.EntryOf(old[0].key);
  harness.io().holds_reads = true;
  std::vector<uint8_t> payload(kPayload);
  const auto pending = harness.store().Get({old[0].Request(payload)}, kTestTimeout);
  harness.clock().Advance(2 * kRetentionUs);
  const uint64_t bytes = RecordBytes(128, kPayload);
  const auto before = StoredBytes(harness.directory(), entry.place).Read(bytes);
  harness.store().Sweep();
  EXPECT_THAT(PutPages(harness.store(), MakeTestPages(1000, 100, kPayload)),
              ::testing::Contains(PutOutcome::kRefusedFull));
  EXPECT_EQ(StoredBytes(harness.directory(), entry.place).Read(bytes), before);
  harness.io().Release();
  // Its promise had ended and its place was given up, so it is not promised again.
  EXPECT_THAT(pending->Wait(), ::testing::ElementsAre(kExpired));
  EXPECT_EQ(harness.store().Stats().get_corrupt, 0u);
}

TEST(LocalStoreFaults, ADirectoryRemovedWhileRunningFailsPutsAndServesNothingWrong) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 20, kPayload);
  PutPages(harness.store(), pages);
  std::filesystem::remove_all(harness.directory());
  EXPECT_EQ(PutPage(harness.store(), MakeTestPage(100, kPayload)), PutOutcome::kFailed);
  ReadPages(harness.store(), pages);  // whatever is served has the right bytes
  harness.store().Sweep();
  harness.store().Touch(KeysOf(pages));
  harness.local().Scrub(1 << 20);
  EXPECT_EQ(harness.store().Stats().evicted_before_deadline, 0u);
}

TEST(LocalStoreFaults, AnIndexRemovedWhileRunningFailsPuts) {
  LocalHarness harness;
  const std::string index = harness.directory() + "/index";
  std::error_code ignored;  // the index may be deleting a file of its own just now
  while (std::filesystem::exists(index)) std::filesystem::remove_all(index, ignored);
  EXPECT_EQ(PutPage(harness.store(), MakeTestPage(1, kPayload)), PutOutcome::kFailed);
}

}  // namespace
}  // namespace emberkv
