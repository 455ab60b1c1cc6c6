// The local store's books: what each segment and each tenant holds and is promised, kept equal to the index.
//
// SegmentBook is what is known to be durable. A BookEdit collects changes to pages, works out what they
// mean for the sums of their segments and tenants, and is applied once the index has committed it. Plain
// values; the store's mutex protects them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/kv_store.h"
#include "store/store_index.h"

namespace emberkv {

class SegmentBook {
 public:
  using Segments = std::map<uint32_t, SegmentEntry>;
  using Tenants = std::unordered_map<Digest, TenantEntry, DigestHash>;

  const Segments& segments() const { return segments_; }
  void Set(const SegmentEntry& entry) { segments_[entry.segment] = entry; }
  void Remove(uint32_t segment) { segments_.erase(segment); }

  const Tenants& tenants() const { return tenants_; }  // those that have pages
  void Set(const TenantEntry& entry);

  uint64_t pages() const;
  uint64_t promised_bytes(int64_t now_us) const;
  uint64_t promised_bytes(const Digest& tenant, int64_t now_us) const;
  std::vector<DeadlineSum> deadlines(int64_t now_us) const;  // of promised pages, soonest first
  std::vector<TenantSum> tenant_sums(int64_t now_us) const;
  // A time at which a page was used, the latest that is certain; 0 without pages.
  int64_t last_use_us(int64_t usual_retention_us) const;

 private:
  Segments segments_;
  Tenants tenants_;
};

void CountPage(const PageEntry& page, TenantEntry* tenant);

class BookEdit {
 public:
  // `book` does not change until the edit is applied or dropped. A key is edited once in an edit.
  explicit BookEdit(const SegmentBook* book) : book_(book) {}

  void AddPage(const BlockHash& key, const PageEntry& entry);
  // `missed_as`: kNeverSeen unless it is to be remembered why the page is not there.
  void RemovePage(const BlockHash& key, const PageEntry& entry,
                  GetOutcome missed_as = GetOutcome::kNeverSeen);
  void MovePage(const BlockHash& key, const PageEntry& from, const RecordPlace& to);
  // The page is as before but for its deadline and its retention.
  void PromisePage(const BlockHash& key, const PageEntry& before, int64_t deadline_us, int64_t retention_us);
  // Nothing is left in the segment, and it is written anew from its beginning.
  void StartGeneration(uint32_t segment, uint64_t generation);
  void RemoveSegment(uint32_t segment);

  bool is_empty() const { return !has_changes_; }

  // Why pages are missed from then on, kNeverSeen for those that are there or need not be remembered.
  const std::vector<std::pair<BlockHash, GetOutcome>>& misses() const { return misses_; }

  IndexBatch& Batch();  // everything, segments and tenants included
  void Apply(SegmentBook* book) const;

 private:
  SegmentEntry& Changed(uint32_t segment);
  TenantEntry& Changed(const Digest& tenant);
  void Count(const PageEntry& entry);
  void Discount(const PageEntry& entry);

  const SegmentBook* const book_;
  IndexBatch batch_;
  bool has_changes_ = false;
  std::vector<std::pair<BlockHash, GetOutcome>> misses_;
  std::map<uint32_t, SegmentEntry> changed_;
  std::set<uint32_t> removed_;
  SegmentBook::Tenants changed_tenants_;  // those that have no pages left included
};

}  // namespace emberkv
