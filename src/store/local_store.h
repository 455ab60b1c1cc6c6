// A KvStore on a local disk: pages in large segment files that are emptied and written again whole, their
// whereabouts and deadlines in an index (docs/cache_format.md).
//
// Payloads are durable before the index names them, so a crash loses nothing that was acknowledged and
// shows nothing that was not. A page is promised until its deadline, which is kept in durable time and
// rounded up: most hits find it late enough already and write nothing; the others wait until the new one
// is durable. Erased and expired bytes stay in the files until their segment is written again.
//
// Thread-safe. Puts, Sweep and EraseTenant take turns; reads wait for none of them longer than for a
// commit of the index. One process owns a directory. Destroying the store waits for its I/O.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/durable_clock.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "store/directory_lock.h"
#include "store/kv_store.h"
#include "store/miss_reasons.h"
#include "store/recent_keys.h"
#include "store/record_writer.h"
#include "store/segment_book.h"
#include "store/segment_files.h"
#include "store/segment_io.h"
#include "store/store_index.h"

namespace emberkv {

struct LocalStoreOptions {
  std::string directory{};  // made if its parent is there
  // Zero: as recorded in the store. What is given is recorded, and holds until something else is.
  uint64_t budget_bytes = 0;  // of disk: segments and index
  std::chrono::microseconds retention{0};  // of a new store, if zero: 72 h
  // Deadlines are rounded up to multiples of this: hits of a page that come closer together write once.
  // Pages with a longer retention of their own: to a few times this. Zero: a 64th of the retention.
  std::chrono::microseconds deadline_step{0};
  uint64_t max_page_bytes = uint64_t{2} << 20;
  // Of a new store; an existing one keeps its own. Zero: what suits the budget, at most 1 GiB.
  uint64_t segment_bytes = 0;
  // Keys whose reason of absence is kept, as far as an eighth of the index's reserve holds them.
  size_t remembered_misses = size_t{1} << 16;
  std::shared_ptr<SegmentIo> io{};  // null: the system's
  Failpoint failpoint{};            // for tests; may be empty
};

struct ScrubReport {
  uint64_t pages = 0;    // read and verified, the corrupt ones included
  uint64_t bytes = 0;
  uint64_t corrupt = 0;  // quarantined now
  uint64_t failed = 0;   // could not be read
  bool is_complete = false;  // the last page was reached; the next scrub starts over
};

class LocalStore : public KvStore {
 public:
  static constexpr size_t kMaxTokensOfRecord = size_t{1} << 16;
  // Compaction may write one byte for so many bytes of new payload (and a segment at once after opening).
  static constexpr uint64_t kWrittenPerCompacted = 4;

  // `clock` outlives the store.
  static Result<std::unique_ptr<LocalStore>> Open(LocalStoreOptions options, const Clock* clock);
  ~LocalStore() override;

  std::vector<PutOutcome> Put(std::span<const PageRecord> pages) override;
  std::unique_ptr<PendingGet> Get(std::vector<GetRequest> requests,
                                  std::chrono::milliseconds timeout) override;
  std::vector<bool> Contains(std::span<const BlockHash> keys) override;
  void Touch(std::span<const BlockHash> keys) override;
  Result<uint64_t> EraseTenant(const Digest& tenant) override;
  // Also notes files that were deleted from outside, and makes room ahead of need.
  uint64_t Sweep() override;
  StoreStats Stats() override;

  // Reads and verifies about `max_bytes` more of what is stored, from the disk itself, and quarantines
  // what is corrupt. Extends nothing.
  ScrubReport Scrub(uint64_t max_bytes);
  // Up to `limit` pages whose keys follow `after`, in the order of keys.
  Result<std::vector<StoreIndex::KeyedEntry>> List(const BlockHash& after, size_t limit) const;
  // What a listed page says of itself, without its payload: sound if the key is the hash of its parts.
  // kNotFound: it moved or went since it was listed. Extends nothing.
  Result<PageHead> ReadHead(const StoreIndex::KeyedEntry& page);

  uint64_t segment_bytes() const { return segment_bytes_; }
  std::chrono::microseconds retention() const { return options_.retention; }
  int64_t durable_now_us() const { return time_.NowMicros(); }
  // "io_uring, direct writes", or what is used instead and why.
  std::string IoDescription() const;

 private:
  class Reads;
  struct PutGroup;
  class StartedGroups;
  using SeenKeys = std::unordered_set<BlockHash, DigestHash>;
  using Misses = std::vector<std::pair<BlockHash, GetOutcome>>;
  using TenantBytes = std::unordered_map<Digest, uint64_t, DigestHash>;
  enum class Room { kThere, kFull, kFailed };
  enum class Purpose { kNewPage, kCompaction };

  LocalStore(LocalStoreOptions options, uint64_t segment_bytes, DirectoryLock lock,
             std::unique_ptr<StoreIndex> index, DurableClock time);

  // local_store.cc
  Status AdoptBooks();
  void At(std::string_view point) const { failpoint_(point); }
  bool IsTooLarge(const PageRecord& page) const;
  std::vector<size_t> TriagePages(std::span<const PageRecord> pages, size_t begin, size_t end, SeenKeys* seen,
                                  std::vector<PutOutcome>* outcomes, std::vector<size_t>* repeats);
  void WritePages(std::span<const PageRecord> pages, std::vector<PutOutcome>* outcomes,
                  std::vector<size_t>* repeats);
  void FinishGroups(StartedGroups* started);
  void SyncGroups(std::span<PutGroup* const> groups, std::map<uint32_t, Status>* failed);
  bool CommitWrites(std::span<PutGroup* const> groups);
  void CountPuts(std::span<const PageRecord> pages, const std::vector<PutOutcome>& outcomes);
  void Quarantine(std::span<const StoreIndex::KeyedEntry> pages);
  void ReadMissesOnce();  // tally_mutex_ is not held
  // book_mutex_ is held
  Status Commit(BookEdit& edit);
  Misses NoteMisses(const Misses& misses);  // tally_mutex_ too
  bool IsMomentDue() const;
  void CommitWhatIsDue();

  // local_promises.cc
  int64_t PromiseUntil(int64_t own_retention_us) const;  // if the page is used now
  bool NeedsExtending(const PageEntry& page) const;
  bool IsTenantFull(const RecordWrite& write, TenantBytes* promised);
  std::vector<bool> Extend(std::span<const BlockHash> keys);
  std::vector<bool> Renew(std::span<const BlockHash> keys, std::span<const int64_t> retentions_us);

  // local_space.cc; append_mutex_ is held
  Room Place(uint64_t record_bytes, Purpose purpose, RecordPlace* place);
  Room OpenSegment(Purpose purpose);
  Room StartSegment(uint32_t segment);
  Room CreateSegment();
  void FillFromTheBeginning(uint32_t segment);
  std::optional<uint32_t> FreeSegment() const;
  size_t FreeSegments() const;
  std::optional<uint32_t> ExpiredSegment() const;
  std::optional<uint32_t> MostlyDeadSegment() const;
  bool IsAtRest(uint32_t segment) const;
  bool Empty(uint32_t segment, uint64_t* pages);
  uint64_t DropExpired(uint32_t segment);
  bool Compact(uint32_t segment);
  bool MovePages(std::span<const StoreIndex::KeyedEntry> pages);
  bool CommitMoves(std::span<const RecordWrite> writes, std::span<const StoreIndex::KeyedEntry> from);
  void CountEvicted(std::span<const StoreIndex::KeyedEntry> pages);
  Status DropMissingFiles();  // book_mutex_ is held too
  Status FitBudget();         // likewise

  // local_read.cc
  void ShareAmongReaders(int64_t reads, const ThreadPool::Body& body);
  Result<std::vector<uint8_t>> ReadRecord(const PageEntry& entry, bool from_disk);
  Result<std::vector<uint8_t>> ReadStart(const PageEntry& entry, uint64_t bytes, bool from_disk);

  // Constant after construction.
  const LocalStoreOptions options_;
  const uint64_t segment_bytes_;
  const Failpoint failpoint_;
  const DirectoryLock lock_;
  const std::shared_ptr<SegmentIo> io_;
  const std::unique_ptr<StoreIndex> index_;
  const DurableClock time_;
  const uint64_t index_reserve_bytes_;
  const uint64_t max_segments_;

  SegmentFiles files_;

  // Taken before book_mutex_ by whoever needs both.
  std::mutex append_mutex_;
  // Guarded by append_mutex_.
  RecordWriter writer_;
  std::optional<RecordPlace> next_;  // of the next record, in the segment being filled
  std::set<uint32_t> unsettled_;     // segments with records that the index does not name yet
  std::set<uint32_t> unwritten_;     // segments whose generation is durable, and nothing was written in it
  uint64_t compaction_credit_bytes_ = 0;

  // Held by whoever changes the index, for as long as the disk takes.
  std::mutex book_mutex_;
  int64_t recorded_us_ = 0;  // guarded by book_mutex_: durable time of the last recorded moment
  // Never held while the disk is at work, so that what is counted can be told while it hangs. Taken last.
  std::mutex tally_mutex_;
  SegmentBook book_;  // changed with both of these mutexes held, read with either
  // Guarded by tally_mutex_.
  MissReasons misses_;  // what changed goes with the next commit
  StoreStats counters_;  // what is counted since opening; the rest is filled in by Stats

  std::once_flag misses_read_;  // whoever uses misses_ sees to it first

  std::mutex scrub_mutex_;
  BlockHash scrubbed_to_;  // guarded by scrub_mutex_

  std::mutex readers_mutex_;
  ThreadPool readers_;  // shared reads from memory; guarded by readers_mutex_

  std::atomic<size_t> reads_in_flight_{0};
  RecentKeys read_lately_{size_t{1} << 17};
};

}  // namespace emberkv
