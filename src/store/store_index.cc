#include "store/store_index.h"

#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <sys/stat.h>

namespace emberkv {
namespace {

namespace fs = std::filesystem;

// First byte of a row's key.
constexpr char kPageRow = 'P';     // key: PageEntry
constexpr char kMemberRow = 'M';   // segment, slot: key of the page there
constexpr char kTenantRow = 'T';   // tenant, key: nothing
constexpr char kSegmentRow = 'S';  // segment: SegmentEntry
constexpr char kOwnerRow = 'O';    // tenant: TenantEntry
constexpr char kMissRow = 'R';     // number: MissRow
constexpr char kMomentRow = 'C';   // DurableMoment

// Small, because all of it counts against the store's budget (log and tables both).
constexpr size_t kMemtableBytes = size_t{2} << 20;
constexpr size_t kBlockCacheBytes = size_t{32} << 20;
constexpr int kMaxOpenTables = 512;

// RocksDB's own log would be a file that grows and that nobody reads; its failures reach us as Status.
class DiscardingLogger : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

rocksdb::Options IndexOptions() {
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.block_cache = rocksdb::NewLRUCache(kBlockCacheBytes);
  table.cache_index_and_filter_blocks = true;  // bounds the memory of 10^8 pages
  table.pin_l0_filter_and_index_blocks_in_cache = true;

  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;  // rows are digests
  options.write_buffer_size = kMemtableBytes;
  options.target_file_size_base = 4 * kMemtableBytes;
  options.max_bytes_for_level_base = 16 * kMemtableBytes;
  options.max_background_jobs = 2;
  options.max_manifest_file_size = 1 << 20;
  // Opening reads what it needs to serve, however large the index: no table is written from the log, few
  // are opened ahead of use, and old files are deleted behind.
  options.avoid_flush_during_recovery = true;
  options.max_open_files = kMaxOpenTables;
  options.avoid_unnecessary_blocking_io = true;
  options.skip_stats_update_on_db_open = true;
  options.skip_checking_sst_file_sizes_on_db_open = true;
  options.stats_dump_period_sec = 0;
  options.info_log = std::make_shared<DiscardingLogger>();
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

Status FromRocks(const rocksdb::Status& status) {
  if (status.ok()) return Status::Ok();
  const std::string message = "index: " + status.ToString();
  if (status.IsCorruption()) return DataLoss(message);
  if (status.IsNoSpace()) return ResourceExhausted(message);
  return Unavailable(message);
}

// Big-endian, so that rows sort by it.
std::string NumberKey(char row, uint32_t number) {
  std::string key(1, row);
  for (int shift = 24; shift >= 0; shift -= 8) key += static_cast<char>(number >> shift & 0xff);
  return key;
}

uint32_t NumberOfKey(std::string_view key) {
  uint32_t number = 0;
  for (size_t i = 1; i <= 4; ++i) number = number << 8 | static_cast<uint8_t>(key[i]);
  return number;
}

std::string DigestKey(char row, const Digest& digest) {
  std::string key(1, row);
  key.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  return key;
}

std::string MemberKey(const RecordPlace& place) {
  return NumberKey(kMemberRow, place.segment) + NumberKey(kMemberRow, place.slot).substr(1);
}

std::string TenantKey(const Digest& tenant, const BlockHash& key) {
  return DigestKey(kTenantRow, tenant) + DigestKey(kTenantRow, key).substr(1);
}

// The digest in the last 32 bytes, if there are as many.
std::optional<Digest> TrailingDigest(std::string_view bytes) {
  Digest digest;
  if (bytes.size() < digest.bytes.size()) return std::nullopt;
  std::memcpy(digest.bytes.data(), bytes.data() + bytes.size() - digest.bytes.size(),
              digest.bytes.size());
  return digest;
}

std::string_view View(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

}  // namespace

PageSum SumOf(const SumsByDeadline& sums) {
  PageSum all;
  for (const auto& [deadline_us, sum] : sums) {
    all.pages += sum.pages;
    all.bytes += sum.bytes;
  }
  return all;
}

PageSum PromisedOf(const SumsByDeadline& sums, int64_t now_us) {
  PageSum promised;
  for (auto it = sums.upper_bound(now_us); it != sums.end(); ++it) {
    promised.pages += it->second.pages;
    promised.bytes += it->second.bytes;
  }
  return promised;
}

struct IndexBatch::Rows {
  rocksdb::WriteBatch batch;
};

IndexBatch::IndexBatch() : rows_(std::make_unique<Rows>()) {}
IndexBatch::~IndexBatch() = default;

// WriteBatch fails only beyond limits that it was not given.
void IndexBatch::PutPage(const BlockHash& key, const PageEntry& entry) {
  (void)rows_->batch.Put(DigestKey(kPageRow, key), EncodePageEntry(entry));
  (void)rows_->batch.Put(MemberKey(entry.place), DigestKey(kPageRow, key).substr(1));
  (void)rows_->batch.Put(TenantKey(entry.tenant, key), {});
}

void IndexBatch::ChangePromise(const BlockHash& key, const PageEntry& entry) {
  (void)rows_->batch.Put(DigestKey(kPageRow, key), EncodePageEntry(entry));
}

void IndexBatch::RemovePage(const BlockHash& key, const PageEntry& entry) {
  (void)rows_->batch.Delete(DigestKey(kPageRow, key));
  (void)rows_->batch.Delete(MemberKey(entry.place));
  (void)rows_->batch.Delete(TenantKey(entry.tenant, key));
}

void IndexBatch::PutSegment(const SegmentEntry& entry) {
  (void)rows_->batch.Put(NumberKey(kSegmentRow, entry.segment), EncodeSegmentEntry(entry));
}

void IndexBatch::RemoveSegment(uint32_t segment) {
  (void)rows_->batch.Delete(NumberKey(kSegmentRow, segment));
}

void IndexBatch::PutTenant(const TenantEntry& entry) {
  (void)rows_->batch.Put(DigestKey(kOwnerRow, entry.tenant), EncodeTenantEntry(entry));
}

void IndexBatch::RemoveTenant(const Digest& tenant) {
  (void)rows_->batch.Delete(DigestKey(kOwnerRow, tenant));
}

void IndexBatch::PutMiss(const MissRow& row) {
  if (row.reason == GetOutcome::kNeverSeen) {
    (void)rows_->batch.Delete(NumberKey(kMissRow, row.number));
  } else {
    (void)rows_->batch.Put(NumberKey(kMissRow, row.number), EncodeMissRow(row));
  }
}

void IndexBatch::PutMoment(const DurableMoment& moment) {
  (void)rows_->batch.Put(std::string(1, kMomentRow), EncodeMoment(moment));
}

struct StoreIndex::Database {
  std::unique_ptr<rocksdb::DB> db;
};

namespace {

// The rows whose keys begin with a prefix, in order, from a key on. The bound matters: without it, the step
// past the last of them would wade through all that was ever deleted behind it.
class RowsUnder {
 public:
  RowsUnder(rocksdb::DB* db, const std::string& prefix, const std::string& from) : end_(prefix) {
    for (size_t i = end_.size(); i > 0; --i) {  // the number after the prefix
      if (++end_[i - 1] != 0) break;
    }
    bound_ = end_;
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = &bound_;
    rows_.reset(db->NewIterator(options));
    rows_->Seek(from);
  }
  RowsUnder(rocksdb::DB* db, const std::string& prefix) : RowsUnder(db, prefix, prefix) {}
  RowsUnder(const RowsUnder&) = delete;
  RowsUnder& operator=(const RowsUnder&) = delete;

  rocksdb::Iterator* operator->() const { return rows_.get(); }

 private:
  std::string end_;
  rocksdb::Slice bound_;  // points into end_
  std::unique_ptr<rocksdb::Iterator> rows_;
};

}  // namespace

StoreIndex::StoreIndex(std::string directory, std::unique_ptr<Database> database)
    : directory_(std::move(directory)), database_(std::move(database)) {}

StoreIndex::~StoreIndex() = default;

Result<std::unique_ptr<StoreIndex>> StoreIndex::Open(const std::string& directory) {
  rocksdb::DB* db = nullptr;
  EMBERKV_RETURN_IF_ERROR(FromRocks(rocksdb::DB::Open(IndexOptions(), directory, &db)));
  auto database = std::make_unique<Database>();
  database->db.reset(db);
  return std::unique_ptr<StoreIndex>(new StoreIndex(directory, std::move(database)));
}

std::vector<std::optional<PageEntry>> StoreIndex::Find(std::span<const BlockHash> keys) const {
  std::vector<std::string> row_keys;
  row_keys.reserve(keys.size());
  for (const BlockHash& key : keys) row_keys.push_back(DigestKey(kPageRow, key));
  const std::vector<rocksdb::Slice> slices(row_keys.begin(), row_keys.end());
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  database_->db->MultiGet(rocksdb::ReadOptions(), database_->db->DefaultColumnFamily(), keys.size(),
                          slices.data(), values.data(), statuses.data());

  std::vector<std::optional<PageEntry>> entries(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!statuses[i].ok()) continue;
    Result<PageEntry> entry = DecodePageEntry(View(values[i]));
    if (entry.ok()) entries[i] = *entry;
  }
  return entries;
}

Result<std::vector<SegmentEntry>> StoreIndex::Segments() const {
  std::vector<SegmentEntry> segments;
  const RowsUnder it(database_->db.get(), std::string(1, kSegmentRow));
  for (; it->Valid(); it->Next()) {
    if (it->key().size() != 5) return DataLoss("index: a segment row's key is damaged");
    const uint32_t segment = NumberOfKey(View(it->key()));
    EMBERKV_ASSIGN_OR_RETURN(SegmentEntry entry, DecodeSegmentEntry(segment, View(it->value())));
    segments.push_back(std::move(entry));
  }
  EMBERKV_RETURN_IF_ERROR(FromRocks(it->status()));
  return segments;
}

Result<std::vector<TenantEntry>> StoreIndex::Tenants() const {
  std::vector<TenantEntry> tenants;
  const RowsUnder it(database_->db.get(), std::string(1, kOwnerRow));
  for (; it->Valid(); it->Next()) {
    const auto tenant = TrailingDigest(View(it->key()));
    if (!tenant) return DataLoss("index: a tenant row's key is damaged");
    EMBERKV_ASSIGN_OR_RETURN(TenantEntry entry, DecodeTenantEntry(*tenant, View(it->value())));
    tenants.push_back(std::move(entry));
  }
  EMBERKV_RETURN_IF_ERROR(FromRocks(it->status()));
  return tenants;
}

Result<std::vector<MissRow>> StoreIndex::Misses() const {
  std::vector<MissRow> rows;
  const RowsUnder it(database_->db.get(), std::string(1, kMissRow));
  for (; it->Valid(); it->Next()) {
    if (it->key().size() != 5) continue;
    const Result<MissRow> row = DecodeMissRow(NumberOfKey(View(it->key())), View(it->value()));
    if (row.ok()) rows.push_back(*row);
  }
  EMBERKV_RETURN_IF_ERROR(FromRocks(it->status()));
  return rows;
}

Result<std::optional<DurableMoment>> StoreIndex::Moment() const {
  std::string value;
  const auto status =
      database_->db->Get(rocksdb::ReadOptions(), std::string(1, kMomentRow), &value);
  if (status.IsNotFound()) return std::optional<DurableMoment>();
  EMBERKV_RETURN_IF_ERROR(FromRocks(status));
  EMBERKV_ASSIGN_OR_RETURN(DurableMoment moment, DecodeMoment(value));
  return std::optional<DurableMoment>(std::move(moment));
}

Result<std::vector<StoreIndex::KeyedEntry>> StoreIndex::PagesListedUnder(const std::string& prefix,
                                                                         bool by_value) const {
  std::vector<BlockHash> keys;
  const RowsUnder it(database_->db.get(), prefix);
  for (; it->Valid(); it->Next()) {
    if (const auto key = TrailingDigest(View(by_value ? it->value() : it->key()))) keys.push_back(*key);
  }
  EMBERKV_RETURN_IF_ERROR(FromRocks(it->status()));
  const std::vector<std::optional<PageEntry>> entries = Find(keys);
  std::vector<KeyedEntry> pages;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (entries[i]) pages.emplace_back(keys[i], *entries[i]);
  }
  return pages;
}

// A commit that failed and is there all the same after a restart may have left a listing of a page that
// was stored elsewhere since: the page's own row decides where it is.
Result<std::vector<StoreIndex::KeyedEntry>> StoreIndex::PagesOfSegment(uint32_t segment) const {
  EMBERKV_ASSIGN_OR_RETURN(auto pages, PagesListedUnder(NumberKey(kMemberRow, segment), true));
  std::erase_if(pages, [&](const KeyedEntry& page) { return page.second.place.segment != segment; });
  return pages;
}

Result<std::vector<StoreIndex::KeyedEntry>> StoreIndex::PagesOfTenant(const Digest& tenant) const {
  EMBERKV_ASSIGN_OR_RETURN(auto pages, PagesListedUnder(DigestKey(kTenantRow, tenant), false));
  std::erase_if(pages, [&](const KeyedEntry& page) { return page.second.tenant != tenant; });
  return pages;
}

Result<std::vector<StoreIndex::KeyedEntry>> StoreIndex::PagesAfter(const BlockHash& after,
                                                                   size_t limit) const {
  std::vector<KeyedEntry> pages;
  const std::string from = DigestKey(kPageRow, after);
  const RowsUnder it(database_->db.get(), std::string(1, kPageRow), from);
  for (; it->Valid() && pages.size() < limit; it->Next()) {
    if (it->key() == rocksdb::Slice(from)) continue;
    const auto key = TrailingDigest(View(it->key()));
    Result<PageEntry> entry = DecodePageEntry(View(it->value()));
    if (!key || !entry.ok()) return DataLoss("index: a page row is damaged");
    pages.emplace_back(*key, *entry);
  }
  EMBERKV_RETURN_IF_ERROR(FromRocks(it->status()));
  return pages;
}

Status StoreIndex::Commit(IndexBatch& batch) {
  rocksdb::WriteOptions synced;
  synced.sync = true;
  const Status status = FromRocks(database_->db->Write(synced, &batch.rows_->batch));
  // After a full disk RocksDB refuses all writes until told to try again.
  if (!status.ok()) (void)database_->db->Resume();
  return status;
}

uint64_t StoreIndex::DiskBytes() const {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    struct stat status;
    if (::stat(it->path().c_str(), &status) == 0) bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

bool StoreIndex::is_in_place() const {
  struct stat status;
  return ::stat((directory_ + "/CURRENT").c_str(), &status) == 0;
}

}  // namespace emberkv

#if defined(__SANITIZE_THREAD__)
// RocksDB comes without instrumentation: how its threads order what they share is not seen.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:librocksdb.so\nrace:librocksdb.so\n";
}
#endif
