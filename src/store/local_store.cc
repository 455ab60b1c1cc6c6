#include "store/local_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "store/store_format.h"
#include "store/store_upgrade.h"

namespace emberkv {
namespace {

constexpr size_t kMaxTokensOfRecord = LocalStore::kMaxTokensOfRecord;
constexpr unsigned kMaxReaders = 4;  // threads that copy out of memory: it takes no more to fill its bus
constexpr int64_t kRecordMomentEveryUs = 60'000'000;
constexpr uint64_t kMissRowBytes = 64;  // and what RocksDB keeps of it
constexpr size_t kErasedPerCommit = 8192;
// Pages written before the next ones follow: long enough to pay for a sync, short enough to overlap.
constexpr size_t kPagesPerGroup = 256;
// Groups indexed at once, if they became durable together; a bound for the commit's size.
constexpr size_t kGroupsPerCommit = 8;

// What the index may take: its log and tables while they are few, and then some 0.8 % of the pages'
// bytes, four times what rows of 112-KiB records come to.
uint64_t IndexReserveBytes(uint64_t budget_bytes) { return (uint64_t{8} << 20) + budget_bytes / 128; }

uint64_t SegmentBytesFor(const LocalStoreOptions& options) {
  if (options.segment_bytes != 0) return options.segment_bytes;
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  constexpr uint64_t kSegmentsAtLeast = 32;  // emptied one by one, so each is a small part of the store
  uint64_t bytes = kMostBytes;
  const uint64_t largest_record = RecordBytes(kMaxTokensOfRecord, options.max_page_bytes);
  while (bytes > options.budget_bytes / kSegmentsAtLeast && bytes / 2 >= largest_record) bytes /= 2;
  return bytes;
}

Status CheckOptions(const LocalStoreOptions& options) {
  if (options.retention.count() < 0) return InvalidArgument("store: retention must be above 0");
  if (options.segment_bytes % kSlotBytes != 0) {
    return InvalidArgument(fmt::format("store: segment_bytes is {}, must be a multiple of {}",
                                       options.segment_bytes, kSlotBytes));
  }
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  if (options.max_page_bytes == 0 || options.max_page_bytes > kMostBytes) {
    return InvalidArgument(fmt::format("store: max_page_bytes is {}, must be from 1 to {}",
                                       options.max_page_bytes, kMostBytes));
  }
  return Status::Ok();
}

// Fills in what was not given, and records what was.
Status SettleSettings(LocalStoreOptions* options) {
  const Result<StoreSettings> recorded = ReadSettings(options->directory);
  StoreSettings settings = recorded.ok() ? *recorded : StoreSettings();
  if (options->budget_bytes == 0 || options->retention.count() == 0) {
    // Nothing is guessed where a record is damaged; a store may have none yet.
    if (recorded.status().code() != StatusCode::kNotFound) EMBERKV_RETURN_IF_ERROR(recorded.status());
    if (options->budget_bytes == 0 && !recorded.ok()) {
      return InvalidArgument(options->directory + ": no budget is recorded here yet, and none was given");
    }
  }
  if (options->budget_bytes != 0) settings.budget_bytes = options->budget_bytes;
  if (options->retention.count() != 0) settings.retention = options->retention;
  options->budget_bytes = settings.budget_bytes;
  options->retention = settings.retention;
  return Status::Ok();
}

Status RecordSettings(const LocalStoreOptions& options) {
  const StoreSettings settings{options.budget_bytes, options.retention};
  const Result<StoreSettings> recorded = ReadSettings(options.directory);
  return recorded.ok() && *recorded == settings ? Status::Ok() : WriteSettings(options.directory, settings);
}

Result<DurableClock> ContinueTime(const StoreIndex& index, const LocalStoreOptions& options,
                                  const Clock* clock) {
  Result<std::optional<DurableMoment>> recorded = index.Moment();
  if (recorded.ok() && *recorded) return DurableClock(clock, **recorded);
  if (recorded.ok()) return DurableClock(clock, StartDurableTime(*clock));
  if (recorded.status().code() != StatusCode::kDataLoss) return recorded.status();
  // The record is lost: time goes on from the last use that the deadlines tell of.
  SegmentBook book;
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<TenantEntry> tenants, index.Tenants());
  for (const TenantEntry& tenant : tenants) book.Set(tenant);
  return DurableClock(clock, StartDurableTime(*clock, book.last_use_us(options.retention.count())));
}

}  // namespace

Result<std::unique_ptr<LocalStore>> LocalStore::Open(LocalStoreOptions options, const Clock* clock) {
  EMBERKV_RETURN_IF_ERROR(CheckOptions(options));
  if (options.io == nullptr) options.io = MakeSegmentIo();
  if (!options.failpoint) options.failpoint = [](std::string_view) {};

  EMBERKV_RETURN_IF_ERROR(PrepareStoreDirectory(options.directory));
  EMBERKV_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Take(options.directory));
  options.failpoint("open.locked");
  EMBERKV_RETURN_IF_ERROR(SettleSettings(&options));
  if (options.deadline_step.count() <= 0) options.deadline_step = options.retention / 64;
  options.deadline_step = std::max(options.deadline_step, std::chrono::microseconds(1));
  EMBERKV_ASSIGN_OR_RETURN(StoreFormat format,
                           ReadOrWriteFormat(options.directory, SegmentBytesFor(options)));
  const uint64_t segment_bytes = format.segment_bytes;
  options.failpoint("open.format");

  const uint64_t reserve_bytes = IndexReserveBytes(options.budget_bytes);
  if (options.budget_bytes < reserve_bytes + 2 * segment_bytes) {
    return InvalidArgument(
        fmt::format("store: a budget of {} bytes is too small: {} for the index and 2 segments of {} are needed",
                    options.budget_bytes, reserve_bytes, segment_bytes));
  }
  EMBERKV_RETURN_IF_ERROR(RecordSettings(options));
  EMBERKV_ASSIGN_OR_RETURN(auto index, StoreIndex::Open(options.directory + "/index"));
  options.failpoint("open.index");
  EMBERKV_RETURN_IF_ERROR(UpgradeStore(options.directory, index.get(), options.failpoint, &format));
  EMBERKV_ASSIGN_OR_RETURN(const DurableClock time, ContinueTime(*index, options, clock));

  std::unique_ptr<LocalStore> store(
      new LocalStore(std::move(options), segment_bytes, std::move(lock), std::move(index), time));
  EMBERKV_RETURN_IF_ERROR(store->AdoptBooks());
  return store;
}

LocalStore::LocalStore(LocalStoreOptions options, uint64_t segment_bytes, DirectoryLock lock,
                       std::unique_ptr<StoreIndex> index, DurableClock time)
    : options_(std::move(options)),
      segment_bytes_(segment_bytes),
      failpoint_(options_.failpoint),
      lock_(std::move(lock)),
      io_(options_.io),
      index_(std::move(index)),
      time_(time),
      index_reserve_bytes_(IndexReserveBytes(options_.budget_bytes)),
      max_segments_((options_.budget_bytes - index_reserve_bytes_) / segment_bytes_),
      files_(options_.directory, segment_bytes_, io_.get()),
      writer_(&files_, io_.get(), RecordBytes(kMaxTokensOfRecord, options_.max_page_bytes), failpoint_),
      compaction_credit_bytes_(segment_bytes_),
      misses_(std::min<uint64_t>(options_.remembered_misses, index_reserve_bytes_ / 8 / kMissRowBytes)),
      readers_(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMaxReaders))) {}

LocalStore::~LocalStore() {
  io_->Drain();
  IndexBatch batch;
  for (const MissRow& row : misses_.TakeChanges()) batch.PutMiss(row);
  // Without it, the time since the last record would not count if the machine is started anew.
  batch.PutMoment(time_.Now());
  (void)index_->Commit(batch);
}

Status LocalStore::AdoptBooks() {
  const std::scoped_lock lock(append_mutex_, book_mutex_);
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<SegmentEntry> segments, index_->Segments());
  for (const SegmentEntry& segment : segments) book_.Set(segment);
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<TenantEntry> tenants, index_->Tenants());
  for (const TenantEntry& tenant : tenants) book_.Set(tenant);
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<uint32_t> files, files_.List());
  for (const uint32_t file : files) {
    const auto known = book_.segments().find(file);
    if (known != book_.segments().end()) {
      files_.Adopt(file, known->second.generation);
    } else {
      (void)files_.Remove(file);  // made just before a crash; nothing was ever written to it
    }
  }
  EMBERKV_RETURN_IF_ERROR(DropMissingFiles());
  At("open.adopted");

  EMBERKV_RETURN_IF_ERROR(FitBudget());
  uint32_t most_free_slots = 0;
  for (const auto& [id, segment] : book_.segments()) {
    const auto free_slots = static_cast<uint32_t>(segment_bytes_ / kSlotBytes) - segment.filled_slots;
    if (segment.pages() == 0 || free_slots <= most_free_slots) continue;
    most_free_slots = free_slots;
    next_ = {.segment = id, .slot = segment.filled_slots, .generation = segment.generation};
  }
  recorded_us_ = time_.NowMicros() - kRecordMomentEveryUs;  // the first commit records the time
  return Status::Ok();
}

bool LocalStore::IsMomentDue() const { return time_.NowMicros() - recorded_us_ >= kRecordMomentEveryUs; }

void LocalStore::CommitWhatIsDue() {
  bool is_due = IsMomentDue();
  {
    const std::lock_guard lock(tally_mutex_);
    is_due |= misses_.has_changes();
  }
  BookEdit nothing_else(&book_);
  if (is_due) (void)Commit(nothing_else);
}

// When somebody first asks: opening and hits do not depend on how many reasons there are. If they cannot be
// read, none are known.
void LocalStore::ReadMissesOnce() {
  std::call_once(misses_read_, [this] {
    const Result<std::vector<MissRow>> rows = index_->Misses();
    const std::lock_guard lock(tally_mutex_);
    if (rows.ok()) misses_.Adopt(*rows);
  });
}

// What was known of these keys before.
LocalStore::Misses LocalStore::NoteMisses(const Misses& misses) {
  Misses before;
  for (const auto& [key, reason] : misses) {
    before.emplace_back(key, misses_.ReasonOf(key));
    if (reason == GetOutcome::kNeverSeen) {
      misses_.Forget(key);
    } else {
      misses_.Record(key, reason);
    }
  }
  return before;
}

Status LocalStore::Commit(BookEdit& edit) {
  IndexBatch& batch = edit.Batch();
  const DurableMoment now = time_.Now();
  const bool is_due = IsMomentDue();
  if (is_due) batch.PutMoment(now);
  if (!edit.misses().empty()) ReadMissesOnce();
  Misses misses_before;
  std::vector<MissRow> miss_rows;
  {
    const std::lock_guard lock(tally_mutex_);
    misses_before = NoteMisses(edit.misses());
    miss_rows = misses_.TakeChanges();
  }
  for (const MissRow& row : miss_rows) batch.PutMiss(row);

  const Status status = index_->Commit(batch);
  const std::lock_guard lock(tally_mutex_);
  if (!status.ok()) {
    misses_.PutBack(miss_rows);
    NoteMisses(misses_before);
    return status;
  }
  if (is_due) recorded_us_ = now.durable_us;
  edit.Apply(&book_);
  return status;
}

bool LocalStore::IsTooLarge(const PageRecord& page) const {
  return page.payload.size() > options_.max_page_bytes || page.tokens.size() > kMaxTokensOfRecord ||
         RecordBytes(page.tokens.size(), page.payload.size()) > segment_bytes_;
}

// Pages of a Put that are written, synced and indexed together.
struct LocalStore::PutGroup {
  std::vector<RecordWrite> writes;
  std::vector<size_t> page_of;  // places in the Put
  std::unique_ptr<RecordWriter::Group> records;
};

// Groups on their way from the thread that starts them to the one that finishes them.
class LocalStore::StartedGroups {
 public:
  void Add(PutGroup* group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
    changed_.notify_one();
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_one();
  }
  // Those that are there, in the order they were started.
  std::vector<PutGroup*> TakeNow() {
    const std::lock_guard lock(mutex_);
    return std::exchange(groups_, {});
  }
  // Waits for some; empty when there will be none.
  std::vector<PutGroup*> Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_closed_ || !groups_.empty(); });
    return std::exchange(groups_, {});
  }

  void NoteFailure() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PutGroup*> groups_;  // guarded by mutex_
  bool is_closed_ = false;         // likewise
  std::atomic<bool> has_failed_{false};
};

std::vector<PutOutcome> LocalStore::Put(std::span<const PageRecord> pages) {
  std::vector<PutOutcome> outcomes(pages.size(), PutOutcome::kFailed);
  const std::lock_guard lock(append_mutex_);
  if (lock_.is_in_place() && index_->is_in_place()) {
    std::vector<size_t> repeats;
    WritePages(pages, &outcomes, &repeats);
    std::unordered_map<BlockHash, PutOutcome, DigestHash> first;
    for (size_t i = 0; i < pages.size(); ++i) first.try_emplace(pages[i].key, outcomes[i]);
    for (const size_t i : repeats) {
      const PutOutcome outcome = first.at(pages[i].key);
      outcomes[i] = outcome == PutOutcome::kStored ? PutOutcome::kAlreadyThere : outcome;
    }
  }
  CountPuts(pages, outcomes);
  return outcomes;
}

// Settles what needs no writing of pages [begin, end) and returns the rest. Pages that are there are extended
// first, so that making room for the others of them takes none.
std::vector<size_t> LocalStore::TriagePages(std::span<const PageRecord> pages, size_t begin, size_t end,
                                            SeenKeys* seen, std::vector<PutOutcome>* outcomes,
                                            std::vector<size_t>* repeats) {
  std::vector<size_t> sound;
  std::vector<BlockHash> keys;
  std::vector<int64_t> retentions_us;
  for (size_t i = begin; i < end; ++i) {
    if (!KeyMatchesParts(pages[i])) continue;  // kFailed
    if (IsTooLarge(pages[i])) {
      (*outcomes)[i] = PutOutcome::kRefusedTooLarge;
    } else if (!seen->insert(pages[i].key).second) {
      repeats->push_back(i);
    } else {
      sound.push_back(i);
      keys.push_back(pages[i].key);
      retentions_us.push_back(pages[i].limits.own_retention_us());
    }
  }
  const std::vector<bool> is_there = Renew(keys, retentions_us);
  std::vector<size_t> wanted;
  for (size_t i = 0; i < sound.size(); ++i) {
    if (is_there[i]) {
      (*outcomes)[sound[i]] = PutOutcome::kAlreadyThere;
    } else {
      wanted.push_back(sound[i]);
    }
  }
  return wanted;
}

// Writes in groups, which are synced and indexed in the order they were started while later ones are looked
// up and on their way to the disk: the disk is never idle but for the first lookup and the last commit.
void LocalStore::WritePages(std::span<const PageRecord> pages, std::vector<PutOutcome>* outcomes,
                            std::vector<size_t>* repeats) {
  StartedGroups started;
  std::future<void> finishing;
  if (pages.size() > kPagesPerGroup) {
    finishing = std::async(std::launch::async | std::launch::deferred, [&] { FinishGroups(&started); });
  }
  std::vector<std::unique_ptr<PutGroup>> groups;
  SeenKeys seen;
  TenantBytes promised;
  for (size_t begin = 0; begin < pages.size(); begin += kPagesPerGroup) {
    if (started.has_failed()) next_.reset();
    const size_t end = std::min(pages.size(), begin + kPagesPerGroup);
    const std::vector<size_t> some = TriagePages(pages, begin, end, &seen, outcomes, repeats);
    auto group = std::make_unique<PutGroup>();
    for (const size_t i : some) {
      RecordWrite write{.page = pages[i], .place = {}, .status = {}};
      if (IsTenantFull(write, &promised)) {
        (*outcomes)[i] = PutOutcome::kRefusedTenantFull;
        continue;
      }
      const Room room = Place(write.record_bytes(), Purpose::kNewPage, &write.place);
      if (room == Room::kFull) (*outcomes)[i] = PutOutcome::kRefusedFull;
      if (room != Room::kThere) continue;
      promised[write.page.tenant] += write.record_bytes();
      group->writes.push_back(write);
      group->page_of.push_back(i);
    }
    if (group->writes.empty()) continue;
    group->records = writer_.Start(group->writes, "put");
    started.Add(group.get());
    groups.push_back(std::move(group));
  }
  started.Close();
  if (finishing.valid()) {
    finishing.get();
  } else {
    FinishGroups(&started);
  }
  if (started.has_failed()) next_.reset();
  unsettled_.clear();
  for (const std::unique_ptr<PutGroup>& group : groups) {
    for (size_t i = 0; i < group->writes.size(); ++i) {
      if (group->writes[i].status.ok()) (*outcomes)[group->page_of[i]] = PutOutcome::kStored;
    }
  }
}

// Until no more are to come. What was written while the disk was busy with the sync of earlier groups, as
// disks are that sync in the order of writes, shares their commit.
void LocalStore::FinishGroups(StartedGroups* started) {
  std::map<uint32_t, Status> failed;  // by segment
  for (auto groups = started->Take(); !groups.empty(); groups = started->Take()) {
    SyncGroups(groups, &failed);
    for (auto more = started->TakeNow(); !more.empty(); more = started->TakeNow()) {
      SyncGroups(more, &failed);
      groups.insert(groups.end(), more.begin(), more.end());
      if (groups.size() >= kGroupsPerCommit) break;
    }
    if (!CommitWrites(groups)) started->NoteFailure();
  }
}

// A sync that failed leaves in doubt what later groups wrote to the segment meanwhile, although their own
// sync may succeed.
void LocalStore::SyncGroups(std::span<PutGroup* const> groups, std::map<uint32_t, Status>* failed) {
  std::vector<std::unique_ptr<RecordWriter::Group>> records;
  for (PutGroup* const group : groups) records.push_back(std::move(group->records));
  writer_.Finish(records);
  for (PutGroup* const group : groups) {
    for (RecordWrite& write : group->writes) {
      const auto earlier = failed->find(write.place.segment);
      if (earlier != failed->end()) {
        write.status = earlier->second;
      } else if (!write.status.ok()) {
        failed->emplace(write.place.segment, write.status);
      }
    }
  }
}

// Makes those that are durable visible; the status of the others, or of all, says that they are not. False
// when there are such: nothing more goes where writing failed until that segment is written anew.
bool LocalStore::CommitWrites(std::span<PutGroup* const> groups) {
  const std::lock_guard lock(book_mutex_);
  BookEdit edit(&book_);
  bool is_sound = true;
  for (const PutGroup* group : groups) {
    for (const RecordWrite& write : group->writes) {
      is_sound &= write.status.ok();
      if (!write.status.ok()) continue;
      const int64_t own_us = write.page.limits.own_retention_us();
      edit.AddPage(write.page.key, {.place = write.place,
                                    .num_tokens = static_cast<uint32_t>(write.page.tokens.size()),
                                    .payload_bytes = static_cast<uint32_t>(write.page.payload.size()),
                                    .deadline_us = PromiseUntil(own_us),
                                    .tenant = write.page.tenant,
                                    .retention_us = own_us});
    }
  }
  if (edit.is_empty()) return is_sound;
  const Status status = Commit(edit);
  At("put.after_index");
  if (status.ok()) return is_sound;
  for (PutGroup* group : groups) {
    for (RecordWrite& write : group->writes) {
      if (write.status.ok()) write.status = status;
    }
  }
  return false;
}

void LocalStore::CountPuts(std::span<const PageRecord> pages, const std::vector<PutOutcome>& outcomes) {
  ReadMissesOnce();
  const std::lock_guard lock(tally_mutex_);
  for (size_t i = 0; i < pages.size(); ++i) {
    const BlockHash& key = pages[i].key;
    switch (outcomes[i]) {
      case PutOutcome::kStored:
        ++counters_.puts_stored;
        counters_.bytes_written += pages[i].payload.size();
        compaction_credit_bytes_ += pages[i].payload.size() / kWrittenPerCompacted;
        break;
      case PutOutcome::kAlreadyThere:
        ++counters_.puts_already_there;
        break;
      case PutOutcome::kRefusedFull:
      case PutOutcome::kRefusedTenantFull:
        ++(outcomes[i] == PutOutcome::kRefusedFull ? counters_.puts_refused_full
                                                   : counters_.puts_refused_tenant_full);
        // That a quarantined page is also refused now says less.
        if (misses_.ReasonOf(key) != GetOutcome::kQuarantined) misses_.Record(key, GetOutcome::kRefused);
        break;
      case PutOutcome::kRefusedTooLarge:
        ++counters_.puts_refused_too_large;
        break;
      case PutOutcome::kFailed:
        ++counters_.puts_failed;
        break;
    }
  }
}

// Hides pages whose records, where `pages` found them, are not what they should be.
void LocalStore::Quarantine(std::span<const StoreIndex::KeyedEntry> pages) {
  if (pages.empty()) return;
  std::vector<BlockHash> keys;
  for (const auto& [key, entry] : pages) keys.push_back(key);
  const std::lock_guard lock(book_mutex_);
  const std::vector<std::optional<PageEntry>> entries = index_->Find(keys);
  BookEdit edit(&book_);
  std::unordered_set<BlockHash, DigestHash> hidden;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!entries[i] || entries[i]->place != pages[i].second.place) continue;  // gone, or stored anew
    if (hidden.insert(keys[i]).second) edit.RemovePage(keys[i], *entries[i], GetOutcome::kQuarantined);
  }
  if (edit.is_empty()) return;
  At("quarantine.before_index");
  (void)Commit(edit);
}

std::vector<bool> LocalStore::Contains(std::span<const BlockHash> keys) {
  std::vector<bool> is_there;
  is_there.reserve(keys.size());
  for (const std::optional<PageEntry>& entry : index_->Find(keys)) is_there.push_back(entry.has_value());
  return is_there;
}

Result<uint64_t> LocalStore::EraseTenant(const Digest& tenant) {
  const std::scoped_lock lock(append_mutex_, book_mutex_);
  EMBERKV_ASSIGN_OR_RETURN(const auto pages, index_->PagesOfTenant(tenant));
  std::span<const StoreIndex::KeyedEntry> rest = pages;
  while (!rest.empty()) {
    const auto now = rest.first(std::min(rest.size(), kErasedPerCommit));
    BookEdit edit(&book_);
    for (const auto& [key, entry] : now) edit.RemovePage(key, entry);
    At("erase.before_index");
    const Status status = Commit(edit);
    if (!status.ok()) {
      return Unavailable(fmt::format("{} of {} pages erased: {}", pages.size() - rest.size(), pages.size(),
                                     status.message()));
    }
    At("erase.after_index");
    rest = rest.subspan(now.size());
  }
  return uint64_t{pages.size()};
}

StoreStats LocalStore::Stats() {
  const uint64_t index_bytes = index_->DiskBytes();
  ReadMissesOnce();
  const std::lock_guard lock(tally_mutex_);
  StoreStats stats = counters_;
  stats.budget_bytes = options_.budget_bytes;
  stats.used_bytes = book_.segments().size() * segment_bytes_ + index_bytes;
  const int64_t now_us = time_.NowMicros();
  stats.promised_bytes = book_.promised_bytes(now_us);
  stats.retention_us = options_.retention.count();
  stats.deadlines = book_.deadlines(now_us);
  stats.tenants = book_.tenant_sums(now_us);
  stats.pages = book_.pages();
  stats.quarantined = misses_.count(GetOutcome::kQuarantined);
  return stats;
}

std::string LocalStore::IoDescription() const {
  return io_->Description() + (files_.is_direct() ? ", direct writes" : ", no direct writes here");
}

}  // namespace emberkv
