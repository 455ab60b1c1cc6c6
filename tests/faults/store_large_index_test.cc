// A store whose index holds a million pages and remembers many that are gone: opening it and serving the first
// of them reads little of it.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fake_clock.h"
#include "store/local_store.h"
#include "store/local_test_medium.h"
#include "store/store_index.h"
#include "store/test_pages.h"

namespace emberkv {
namespace {

constexpr uint64_t kRows = 1'000'000;
constexpr uint64_t kRowsPerCommit = 5000;
constexpr uint32_t kMisses = 16'384;
constexpr size_t kPayloadBytes = 4000;

// Evenly spread over all keys, and ascending, so that a million rows are written in seconds.
BlockHash KeyOfRow(uint64_t row) {
  BlockHash key;
  const uint64_t prefix = row * (UINT64_MAX / kRows);
  for (size_t i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(prefix >> (56 - 8 * i));
  std::memcpy(key.bytes.data() + 8, &row, sizeof row);
  return key;
}

double MillisSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Rows as a million puts leave them, all of them of one segment, behind the record that is there.
void AddRows(const std::string& directory, PageEntry entry) {
  const auto index = StoreIndex::Open(directory + "/index").value();
  SegmentEntry segment = index->Segments().value().front();
  for (uint64_t row = 0; row < kRows;) {
    IndexBatch batch;
    for (uint64_t i = 0; i < kRowsPerCommit; ++i, ++row) {
      ++entry.place.slot;
      batch.PutPage(KeyOfRow(row), entry);
    }
    ASSERT_TRUE(index->Commit(batch).ok());
  }
  PageSum& sum = segment.by_deadline[entry.deadline_us];
  sum.pages += kRows;
  sum.bytes += kRows * entry.record_bytes();
  IndexBatch batch;
  batch.PutSegment(segment);
  for (uint32_t i = 0; i < kMisses; ++i) {
    batch.PutMiss({.number = i, .serial = i, .reason = GetOutcome::kQuarantined, .key = Sha256(std::to_string(i))});
  }
  ASSERT_TRUE(index->Commit(batch).ok());
}

TEST(StoreWithAMillionPages, OpensAndServesTheRightPage) {
  const TemporaryDirectory directory;
  const FakeClock clock;
  LocalStoreOptions options{.directory = directory.path(),
                            .budget_bytes = uint64_t{64} << 20,
                            .max_page_bytes = 16 << 10,
                            .segment_bytes = uint64_t{1} << 20};
  const std::vector<TestPage> pages = MakeTestPages(1, 2, kPayloadBytes);
  PageEntry entry;
  {
    const auto store = LocalStore::Open(options, &clock).value();
    ASSERT_EQ(PutPage(*store, pages[0]), PutOutcome::kStored);
    entry = store->List({}, 1).value().front().second;
  }
  AddRows(directory.path(), entry);

  const auto begin = std::chrono::steady_clock::now();
  const auto store = LocalStore::Open(options, &clock).value();
  const double open_ms = MillisSince(begin);
  EXPECT_EQ(ReadPage(*store, pages[0]), GetOutcome::kHit);
  std::printf("%lu pages: open %.1f ms, first hit after %.1f ms\n", kRows + 1, open_ms, MillisSince(begin));

  EXPECT_EQ(store->Stats().pages, kRows + 1);
  EXPECT_EQ(store->Stats().quarantined, kMisses);
  EXPECT_EQ(ReadPage(*store, pages[1]), GetOutcome::kNeverSeen);
  std::vector<BlockHash> keys = {KeyOfRow(0), KeyOfRow(kRows / 2), KeyOfRow(kRows - 1), KeyOfRow(kRows)};
  EXPECT_EQ(store->Contains(keys), (std::vector<bool>{true, true, true, false}));
}

}  // namespace
}  // namespace emberkv
