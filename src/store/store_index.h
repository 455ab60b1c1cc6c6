// The local store's index: where each page lies, until when it is promised, what each segment and each tenant
// holds, why pages are missing, and what time it is. Kept in RocksDB, whose transactions and recovery it relies
// on; no RocksDB type leaves this file's .cc, and its errors become Status.
//
// Row formats are in docs/cache_format.md. Any thread may read; writes are one IndexBatch at a time,
// serialised by the store.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/durable_clock.h"
#include "base/status.h"
#include "store/miss_reasons.h"
#include "store/record_format.h"

namespace emberkv {

struct PageEntry {
  RecordPlace place;
  uint32_t num_tokens = 0;
  uint32_t payload_bytes = 0;
  int64_t deadline_us = 0;  // durable time
  Digest tenant;
  int64_t retention_us = 0;  // the page's own; 0: the store's

  uint64_t record_bytes() const { return RecordBytes(num_tokens, payload_bytes); }
  bool operator==(const PageEntry&) const = default;
};

struct PageSum {
  uint64_t pages = 0;
  uint64_t bytes = 0;  // records, padding included
  bool operator==(const PageSum&) const = default;
};
// Deadlines are coarse, so the sums are few. None is empty.
using SumsByDeadline = std::map<int64_t, PageSum>;

PageSum SumOf(const SumsByDeadline& sums);
PageSum PromisedOf(const SumsByDeadline& sums, int64_t now_us);  // of pages whose deadline is later

// A segment and what lies in it.
struct SegmentEntry {
  uint32_t segment = 0;
  uint32_t filled_slots = 0;  // written in this generation; the rest is free
  uint64_t generation = 1;
  SumsByDeadline by_deadline;

  uint64_t pages() const { return SumOf(by_deadline).pages; }
  PageSum PromisedAt(int64_t now_us) const { return PromisedOf(by_deadline, now_us); }
  int64_t last_deadline_us() const { return by_deadline.empty() ? 0 : by_deadline.rbegin()->first; }
  bool operator==(const SegmentEntry&) const = default;
};

// A tenant and what it has.
struct TenantEntry {
  Digest tenant;
  int64_t longest_retention_us = 0;  // that a page had of its own since the tenant last had none
  SumsByDeadline by_deadline;

  bool operator==(const TenantEntry&) const = default;
};

// Values of rows. What Decode refuses is not a value of this version.
std::string EncodePageEntry(const PageEntry& entry);
Result<PageEntry> DecodePageEntry(std::string_view value);
std::string EncodeSegmentEntry(const SegmentEntry& entry);
Result<SegmentEntry> DecodeSegmentEntry(uint32_t segment, std::string_view value);
std::string EncodeTenantEntry(const TenantEntry& entry);
Result<TenantEntry> DecodeTenantEntry(const Digest& tenant, std::string_view value);
std::string EncodeMissRow(const MissRow& row);  // of one that is not empty
Result<MissRow> DecodeMissRow(uint32_t number, std::string_view value);
std::string EncodeMoment(const DurableMoment& moment);
Result<DurableMoment> DecodeMoment(std::string_view value);

// Changes that become durable together.
class IndexBatch {
 public:
  IndexBatch();
  ~IndexBatch();

  void PutPage(const BlockHash& key, const PageEntry& entry);
  // All but deadline and retention is as it was.
  void ChangePromise(const BlockHash& key, const PageEntry& entry);
  void RemovePage(const BlockHash& key, const PageEntry& entry);
  void PutSegment(const SegmentEntry& entry);
  void RemoveSegment(uint32_t segment);
  void PutTenant(const TenantEntry& entry);
  void RemoveTenant(const Digest& tenant);
  void PutMiss(const MissRow& row);  // removes an empty one
  void PutMoment(const DurableMoment& moment);

 private:
  friend class StoreIndex;
  struct Rows;
  std::unique_ptr<Rows> rows_;
};

class StoreIndex {
 public:
  // Opens or creates the index in `directory`.
  static Result<std::unique_ptr<StoreIndex>> Open(const std::string& directory);
  ~StoreIndex();

  using KeyedEntry = std::pair<BlockHash, PageEntry>;

  // In the order of `keys`; an entry that cannot be read is not there.
  std::vector<std::optional<PageEntry>> Find(std::span<const BlockHash> keys) const;
  Result<std::vector<SegmentEntry>> Segments() const;
  Result<std::vector<TenantEntry>> Tenants() const;
  Result<std::vector<MissRow>> Misses() const;  // those that can be read
  Result<std::optional<DurableMoment>> Moment() const;

  // What lies in a segment, by slot, and what belongs to a tenant, by key.
  Result<std::vector<KeyedEntry>> PagesOfSegment(uint32_t segment) const;
  Result<std::vector<KeyedEntry>> PagesOfTenant(const Digest& tenant) const;
  // Up to `limit` pages whose keys follow `after`, in the order of keys.
  Result<std::vector<KeyedEntry>> PagesAfter(const BlockHash& after, size_t limit) const;

  // Synced when it returns OK. After a failure the rows may or may not be there when the index is next
  // opened, but no reader of this process sees them.
  Status Commit(IndexBatch& batch);

  uint64_t DiskBytes() const;  // what its files take now
  bool is_in_place() const;    // its files were not deleted from outside

 private:
  struct Database;
  StoreIndex(std::string directory, std::unique_ptr<Database> database);

  // Keys named by the rows under `prefix`, and the pages among them.
  Result<std::vector<KeyedEntry>> PagesListedUnder(const std::string& prefix, bool by_value) const;

  const std::string directory_;
  const std::unique_ptr<Database> database_;
};

}  // namespace emberkv
