// What the local store keeps beyond the contract of every store: space, time, ownership, restarts.
#include "store/local_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "store/local_harness.h"

namespace emberkv {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kPayload = LocalHarness::kPayloadBytes;

uint64_t DiskUse(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(directory)) {
    struct stat status;
    if (::stat(file.path().c_str(), &status) == 0) bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

std::vector<TenantSum> SortedTenants(KvStore& store) {
  std::vector<TenantSum> tenants = store.Stats().tenants;
  std::ranges::sort(tenants, {}, &TenantSum::tenant);
  return tenants;
}

// Puts pages from `first` on until one is refused; those that were stored.
std::vector<TestPage> FillUp(KvStore& store, uint64_t first) {
  std::vector<TestPage> stored;
  while (true) {
    constexpr size_t kBatch = 10;
    const auto pages = MakeTestPages(first, kBatch, kPayload);
    const auto outcomes = PutPages(store, pages);
    for (size_t i = 0; i < kBatch; ++i) {
      if (outcomes[i] != PutOutcome::kStored) return stored;
      stored.push_back(pages[i]);
    }
    first += kBatch;
  }
}

TEST(LocalStore, Case_Q01_TheDirectoryStaysWithinTheBudget) {
  LocalHarness harness;
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_GT(FillUp(harness.store(), round * 10'000).size(), 50u);
    EXPECT_LE(DiskUse(harness.directory()), LocalHarness::kBudgetBytes);
    const uint64_t used = harness.store().Stats().used_bytes;
    EXPECT_LE(DiskUse(harness.directory()), used + (64 << 10));
    harness.clock().Advance(2 * kRetentionUs);
  }
}

TEST(LocalStore, ABudgetTooSmallIsRefusedWithTheNumbers) {
  const TemporaryDirectory directory;
  const FakeClock clock;
  LocalStoreOptions options{.directory = directory.path(), .budget_bytes = 1 << 20};
  const auto store = LocalStore::Open(options, &clock);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(store.status().message(), HasSubstr("1048576"));
}

TEST(LocalStore, AnExistingStoreKeepsItsSegmentSize) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 10, kPayload);
  PutPages(harness.store(), pages);
  harness.options().segment_bytes = 256 << 10;
  harness.Reopen(Reboot::kNo);
  EXPECT_EQ(harness.local().segment_bytes(), 64u << 10);
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(GetOutcome::kHit));
}

TEST(LocalStore, ASmallerBudgetGivesFreeSegmentsBackAndKeepsPromises) {
  LocalHarness harness;
  const auto old = FillUp(harness.store(), 0);
  harness.clock().Advance(2 * kRetentionUs);
  const auto kept = MakeTestPages(10'000, 6, kPayload);
  PutPages(harness.store(), kept);
  harness.store().Sweep();
  harness.options().budget_bytes = uint64_t{17} << 19;
  harness.Reopen(Reboot::kNo);
  EXPECT_LE(harness.store().Stats().used_bytes, uint64_t{17} << 19);
  EXPECT_LE(DiskUse(harness.directory()), uint64_t{17} << 19);
  EXPECT_THAT(ReadPages(harness.store(), kept), Each(GetOutcome::kHit));
}

TEST(LocalStore, AFreshStoreTakesSpaceAsItFills) {
  constexpr uint64_t kSegment = uint64_t{8} << 20;
  LocalHarness harness(uint64_t{64} << 20, kSegment);
  PutPage(harness.store(), MakeTestPage(1, kPayload));
  struct stat status;
  ASSERT_EQ(::stat(SegmentPath(harness.directory(), 1).c_str(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), kSegment);
  EXPECT_LT(static_cast<uint64_t>(status.st_blocks) * 512, kSegment / 4);
  EXPECT_GE(harness.store().Stats().used_bytes, kSegment) << "the budget counts it whole";
  const auto pages = MakeTestPages(2, 350, kPayload);
  EXPECT_THAT(PutPages(harness.store(), pages), Each(PutOutcome::kStored));
  EXPECT_GE(DiskUse(harness.directory()), pages.size() * RecordBytes(128, kPayload));
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(GetOutcome::kHit));
}

TEST(LocalStore, KeepsTheBudgetAndTheRetentionItWasLastOpenedWith) {
  LocalHarness harness;
  harness.options().budget_bytes = 0;
  harness.options().retention = std::chrono::microseconds(0);
  harness.Reopen(Reboot::kNo);
  EXPECT_EQ(harness.store().Stats().budget_bytes, LocalHarness::kBudgetBytes);
  EXPECT_EQ(harness.local().retention(), kContractRetention);
  harness.options().budget_bytes = 2 * LocalHarness::kBudgetBytes;
  harness.options().retention = std::chrono::hours(5);
  harness.Reopen(Reboot::kNo);
  harness.options().budget_bytes = 0;
  harness.options().retention = std::chrono::microseconds(0);
  harness.Reopen(Reboot::kNo);
  EXPECT_EQ(harness.store().Stats().budget_bytes, 2 * LocalHarness::kBudgetBytes);
  EXPECT_EQ(harness.local().retention(), std::chrono::hours(5));
}

TEST(LocalStore, ANewStoreNeedsABudgetAndDamagedSettingsAreNotGuessed) {
  LocalHarness harness;
  const TemporaryDirectory directory;
  LocalStoreOptions options{.directory = directory.path() + "/new"};
  const auto store = LocalStore::Open(options, &harness.clock());
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr("no budget is recorded"));

  harness.Close();
  std::ofstream(harness.directory() + "/SETTINGS") << "budget_bytes 10485760\nretention";
  options = harness.options();
  options.budget_bytes = 0;
  EXPECT_THAT(LocalStore::Open(options, &harness.clock()).status().message(), HasSubstr("SETTINGS"));
  harness.Open();  // with both given
  harness.Close();
  EXPECT_TRUE(LocalStore::Open(options, &harness.clock()).ok());
}

TEST(LocalStore, ReadsHeadsWithoutPayloads) {
  LocalHarness harness;
  const TestPage page = MakeTestPage(3, kPayload);
  PutPage(harness.store(), page);
  const auto listed = harness.local().List({}, 1).value().front();
  harness.Damage(page.key);  // in its payload, which a head does not vouch for
  const auto head = harness.local().ReadHead(listed);
  ASSERT_TRUE(head.ok()) << head.status().ToString();
  EXPECT_EQ(head->parent, page.parent);
  EXPECT_EQ(head->provenance, page.provenance);
  EXPECT_EQ(head->tokens, page.tokens);
  StoredBytes(harness.directory(), listed.second.place).Flip(RecordHeadBytes(128) - 1);
  EXPECT_EQ(harness.local().ReadHead(listed).status().code(), StatusCode::kDataLoss);
}

// Every second page is used again, so that no segment ever expires as a whole.
TEST(LocalStore, MostlyDeadSegmentsAreCompactedToMakeRoom) {
  LocalHarness harness;
  const auto pages = FillUp(harness.store(), 0);
  std::vector<TestPage> used_again;
  for (size_t i = 0; i < pages.size(); i += 4) used_again.push_back(pages[i]);
  harness.clock().Advance(kRetentionUs / 2);
  EXPECT_THAT(ReadPages(harness.store(), used_again), Each(GetOutcome::kHit));
  harness.clock().Advance(kRetentionUs * 3 / 4);

  const auto more = FillUp(harness.store(), 10'000);
  EXPECT_GT(more.size(), pages.size() / 8);
  EXPECT_THAT(ReadPages(harness.store(), used_again), Each(GetOutcome::kHit));
  EXPECT_THAT(ReadPages(harness.store(), more), Each(GetOutcome::kHit));
  EXPECT_EQ(harness.store().Stats().evicted_before_deadline, 0u);
  harness.Reopen(Reboot::kNo);
  EXPECT_THAT(ReadPages(harness.store(), used_again), Each(GetOutcome::kHit));
}

TEST(LocalStore, CompactionWritesNoMoreThanItsShare) {
  LocalHarness harness;
  uint64_t next = 0;
  std::vector<TestPage> last = FillUp(harness.store(), next);
  for (int round = 0; round < 4; ++round) {
    std::vector<TestPage> used_again;
    for (size_t i = 0; i < last.size(); i += 4) used_again.push_back(last[i]);
    harness.clock().Advance(kRetentionUs / 2);
    ReadPages(harness.store(), used_again);
    harness.clock().Advance(kRetentionUs * 3 / 4);
    last = FillUp(harness.store(), next += 10'000);
  }
  const StoreStats stats = harness.store().Stats();
  const uint64_t records = stats.puts_stored * RecordBytes(128, kPayload);
  const uint64_t moved = harness.io().bytes_written - records;
  EXPECT_GT(moved, 0u);
  EXPECT_LE(moved, stats.bytes_written / LocalStore::kWrittenPerCompacted + harness.local().segment_bytes());
}

TEST(LocalStore, HitsCloseTogetherWriteTheirDeadlineOnce) {
  const TemporaryDirectory directory;
  FakeClock clock;
  int extensions = 0;
  LocalStoreOptions options{.directory = directory.path(),
                            .budget_bytes = uint64_t{16} << 20,
                            .segment_bytes = uint64_t{1} << 20};
  options.failpoint = [&](std::string_view point) { extensions += point == "extend.after_index"; };
  auto store = LocalStore::Open(options, &clock).value();
  const auto pages = MakeTestPages(1, 4, kPayload);
  PutPages(*store, pages);
  for (int hit = 0; hit < 72; ++hit) {
    clock.Advance(kRetentionUs / 72);
    ReadPages(*store, pages);
  }
  EXPECT_GE(extensions, 60);
  EXPECT_LE(extensions, 66);
  extensions = 0;
  for (int hit = 0; hit < 100; ++hit) {
    clock.Advance(1'000'000);
    ReadPages(*store, pages);
  }
  EXPECT_LE(extensions, 1);
}

TEST(LocalStore, Case_R02_ASecondOwnerIsToldWhoHoldsTheDirectory) {
  LocalHarness harness;
  const auto second = LocalStore::Open(harness.options(), &harness.clock());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("in use by process " + std::to_string(::getpid())));
  harness.Close();
  EXPECT_TRUE(LocalStore::Open(harness.options(), &harness.clock()).ok());
}

TEST(LocalStore, Case_R02_LeftoversOfACrashAreRemoved) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 10, kPayload);
  PutPages(harness.store(), pages);
  harness.Close();
  const std::string half_made = SegmentPath(harness.directory(), 77) + ".new";
  const std::string not_indexed = SegmentPath(harness.directory(), 78);
  const std::string half_format = harness.directory() + "/FORMAT.new";
  for (const std::string& path : {half_made, not_indexed, half_format}) {
    std::ofstream(path) << std::string(100'000, 'x');
  }
  harness.Open();
  for (const std::string& path : {half_made, not_indexed, half_format}) {
    EXPECT_FALSE(std::filesystem::exists(path)) << path;
  }
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(GetOutcome::kHit));
}

TEST(LocalStore, AnUnknownVersionIsRefusedAndLeftAlone) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 3, kPayload);
  PutPages(harness.store(), pages);
  harness.Close();
  const std::string format = harness.directory() + "/FORMAT";
  std::ofstream(format) << "emberkv store\nversion 3\nsegment_bytes 65536\n";
  const auto refused = LocalStore::Open(harness.options(), &harness.clock());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("version 3"));
  for (const char* damaged : {"", "emberkv store\n", "emberkv store\nversion 2\n", "something else",
                              "emberkv store\nversion 0\nsegment_bytes 65536\n",
                              "emberkv store\nversion 2\nsegment_bytes 1000\n"}) {
    std::ofstream(format) << damaged;
    EXPECT_FALSE(LocalStore::Open(harness.options(), &harness.clock()).ok()) << damaged;
  }
  std::ofstream(format) << "emberkv store\nversion 2\nsegment_bytes 65536\n";
  harness.Open();
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(GetOutcome::kHit));
}

TEST(LocalStore, AStoreOfVersion1IsUpgradedWhenItIsOpened) {
  LocalHarness harness;
  for (uint64_t tenant = 0; tenant < 3; ++tenant) {
    PutPages(harness.store(), MakeTestPages(10 * tenant, 4 + tenant, kPayload, tenant));
    harness.clock().Advance(kRetentionUs / 4);
  }
  const auto pages = MakeTestPages(0, 4, kPayload);
  ReadPages(harness.store(), std::span(pages).first(2));
  const std::vector<TenantSum> before = SortedTenants(harness.store());
  harness.Close();
  MakeVersion1(harness.directory());
  harness.Open();
  EXPECT_EQ(SortedTenants(harness.store()), before);
  EXPECT_EQ(before.size(), 3u);
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(GetOutcome::kHit));
  harness.Close();
  EXPECT_EQ(ReadOrWriteFormat(harness.directory(), 0)->version, kStoreFormatVersion);
  harness.Open();
  EXPECT_EQ(SortedTenants(harness.store()), before);
}

// A build of version 1 may have used the store between an upgrade that was interrupted and the next one.
TEST(LocalStore, AnUpgradeThatWasInterruptedStartsOver) {
  LocalHarness harness;
  PutPages(harness.store(), MakeTestPages(1, 5, kPayload, 1));
  const std::vector<TenantSum> right = SortedTenants(harness.store());
  harness.Close();
  MakeVersion1(harness.directory());
  {
    const auto index = StoreIndex::Open(harness.directory() + "/index").value();
    IndexBatch batch;
    for (const uint64_t tenant : {1, 2}) {
      batch.PutTenant({.tenant = TestTenant(tenant), .by_deadline = {{kRetentionUs, {9, 9}}}});
    }
    ASSERT_TRUE(index->Commit(batch).ok());
  }
  harness.Open();
  EXPECT_EQ(SortedTenants(harness.store()), right);
}

TEST(LocalStore, ATenantsLimitHoldsWithinAPutOfManyGroups) {
  LocalHarness harness(uint64_t{64} << 20, uint64_t{1} << 20);
  constexpr size_t kStored = 700, kPages = 1200;
  const auto pages = MakeTestPages(1, kPages, 1000, 1);
  const StoreLimits limits{.max_bytes = kStored * RecordBytes(128, 1000)};
  const auto outcomes = PutPagesWithin(harness.store(), pages, limits);
  EXPECT_THAT(std::span(outcomes).first(kStored), Each(PutOutcome::kStored));
  EXPECT_THAT(std::span(outcomes).subspan(kStored), Each(PutOutcome::kRefusedTenantFull));
  EXPECT_EQ(SortedTenants(harness.store()).front().promised_bytes, limits.max_bytes);
}

TEST(LocalStore, RemembersABoundedNumberOfMissesAcrossRestarts) {
  LocalHarness harness;
  harness.options().remembered_misses = 4;
  harness.Reopen(Reboot::kNo);
  FillUp(harness.store(), 0);
  const auto refused = MakeTestPages(10'000, 10, kPayload);
  EXPECT_THAT(PutPages(harness.store(), refused), Each(PutOutcome::kRefusedFull));
  for (int opening = 0; opening < 2; ++opening) {
    EXPECT_THAT(ReadPages(harness.store(), std::span(refused).first(6)), Each(GetOutcome::kNeverSeen));
    EXPECT_THAT(ReadPages(harness.store(), std::span(refused).subspan(6)), Each(GetOutcome::kRefused));
    harness.Reopen(Reboot::kNo);
  }
}

// The directory as a crash leaves it: what was synced by then.
TEST(LocalStore, WhyAPageWentIsAsDurableAsThatItWent) {
  LocalHarness harness;
  const auto pages = FillUp(harness.store(), 0);
  harness.clock().Advance(2 * kRetentionUs);
  ASSERT_GT(harness.store().Sweep(), 0u);
  const TemporaryDirectory crashed;
  std::filesystem::copy(harness.directory(), crashed.path(), std::filesystem::copy_options::recursive);
  LocalStoreOptions options = harness.options();
  options.directory = crashed.path();
  const auto store = LocalStore::Open(options, &harness.clock()).value();
  EXPECT_THAT(ReadPages(*store, pages), ::testing::Contains(GetOutcome::kExpired));
  EXPECT_THAT(ReadPages(*store, pages), ::testing::Not(::testing::Contains(GetOutcome::kNeverSeen)));
}

TEST(LocalStore, ADirectoryWithOtherThingsIsRefusedAndLeftAlone) {
  const TemporaryDirectory directory;
  const FakeClock clock;
  std::ofstream(directory.path() + "/thesis.txt") << "important";
  LocalStoreOptions options{.directory = directory.path(), .budget_bytes = uint64_t{1} << 30};
  const auto store = LocalStore::Open(options, &clock);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr("thesis.txt"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);

  options.directory = directory.path() + "/no/such/parent";
  EXPECT_FALSE(LocalStore::Open(options, &clock).ok());
  options.directory = directory.path() + "/thesis.txt";
  EXPECT_FALSE(LocalStore::Open(options, &clock).ok());
}

TEST(LocalStore, Case_Q03_DeletedSegmentFilesAreNoticedAndTheirSpaceIsUsedAgain) {
  LocalHarness harness;
  const auto pages = FillUp(harness.store(), 0);
  const uint64_t used = harness.store().Stats().used_bytes;
  const uint32_t deleted = harness.EntryOf(pages[0].key).place.segment;
  std::filesystem::remove(SegmentPath(harness.directory(), deleted));
  harness.store().Sweep();
  EXPECT_LT(harness.store().Stats().used_bytes, used);
  EXPECT_NE(ReadPage(harness.store(), pages[0]), GetOutcome::kHit);
  EXPECT_EQ(PutPage(harness.store(), pages[0]), PutOutcome::kStored);

  const uint32_t deleted_while_closed = harness.EntryOf(pages[20].key).place.segment;
  harness.Close();
  std::filesystem::remove(SegmentPath(harness.directory(), deleted_while_closed));
  harness.Open();
  EXPECT_NE(ReadPage(harness.store(), pages[20]), GetOutcome::kHit);
  EXPECT_EQ(PutPage(harness.store(), pages[20]), PutOutcome::kStored);
  EXPECT_EQ(ReadPage(harness.store(), pages[0]), GetOutcome::kHit);
}

TEST(LocalStore, ReadsAheadAreBoundedAndLongBatchesComplete) {
  LocalHarness harness;
  harness.io().is_memory_cold = true;
  const auto pages = FillUp(harness.store(), 0);
  ASSERT_GT(pages.size(), 50u);
  EXPECT_THAT(ReadPages(harness.store(), pages), Each(GetOutcome::kHit));
}

TEST(LocalStore, ScrubFindsDamageBeforeAReaderDoes) {
  LocalHarness harness;
  const auto pages = MakeTestPages(1, 60, kPayload);
  PutPages(harness.store(), pages);
  const std::vector<size_t> damaged = {3, 30, 59};
  for (const size_t i : damaged) harness.Damage(pages[i].key);
  const uint64_t record_bytes = RecordBytes(128, kPayload);
  uint64_t scrubbed = 0, corrupt = 0;
  bool is_complete = false;
  for (int round = 0; round < 20 && !is_complete; ++round) {
    const ScrubReport report = harness.local().Scrub(10 * record_bytes);
    EXPECT_LE(report.pages, 10u);
    scrubbed += report.pages;
    corrupt += report.corrupt;
    is_complete = report.is_complete;
  }
  EXPECT_TRUE(is_complete);
  EXPECT_EQ(scrubbed, pages.size());
  EXPECT_EQ(corrupt, damaged.size());
  for (const size_t i : damaged) EXPECT_EQ(ReadPage(harness.store(), pages[i]), GetOutcome::kQuarantined);
  EXPECT_EQ(harness.local().Scrub(uint64_t{1} << 30).corrupt, 0u);
}

TEST(LocalStore, ServesWithoutIoUringAndSaysSo) {
  LocalHarness harness;
  harness.Close();
  LocalStoreOptions options = harness.options();
  options.io = MakeThreadIo("asked for by a test");
  auto store = LocalStore::Open(options, &harness.clock()).value();
  const auto pages = MakeTestPages(1, 40, kPayload);
  EXPECT_THAT(PutPages(*store, pages), Each(PutOutcome::kStored));
  EXPECT_THAT(ReadPages(*store, pages), Each(GetOutcome::kHit));
  EXPECT_THAT(store->IoDescription(), HasSubstr("threads (asked for by a test)"));
}

}  // namespace
}  // namespace emberkv
