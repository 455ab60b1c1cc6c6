// The local store's books: what each segment holds and promises, kept equal to the index.
//
// SegmentBook is what is known to be durable. A BookEdit collects changes to pages, works out what they
// mean for the sums of their segments, and is applied once the index has committed it. Plain values; the
// store's mutex protects them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "store/kv_store.h"
#include "store/store_index.h"

namespace emberkv {

class SegmentBook {
 public:
  using Segments = std::map<uint32_t, SegmentEntry>;

  const Segments& segments() const { return segments_; }
  void Set(const SegmentEntry& entry) { segments_[entry.segment] = entry; }
  void Remove(uint32_t segment) { segments_.erase(segment); }

  uint64_t pages() const;
  uint64_t promised_bytes(int64_t now_us) const;
  std::vector<DeadlineSum> deadlines(int64_t now_us) const;  // of promised pages, soonest first
  int64_t last_deadline_us() const;  // of all pages; 0 without any

 private:
  Segments segments_;
};

class BookEdit {
 public:
  // `book` does not change until the edit is applied or dropped. A key is edited once in an edit.
  explicit BookEdit(const SegmentBook* book) : book_(book) {}

  void AddPage(const BlockHash& key, const PageEntry& entry);
  void RemovePage(const BlockHash& key, const PageEntry& entry);
  void MovePage(const BlockHash& key, const PageEntry& from, const RecordPlace& to);
  void ExtendPage(const BlockHash& key, const PageEntry& entry, int64_t deadline_us);
  // Nothing is left in the segment, and it is written anew from its beginning.
  void StartGeneration(uint32_t segment, uint64_t generation);
  void RemoveSegment(uint32_t segment);

  bool is_empty() const { return !has_changes_; }

  IndexBatch& Batch();  // everything, segments included
  void Apply(SegmentBook* book) const;

 private:
  SegmentEntry& Changed(uint32_t segment);
  void Count(const PageEntry& entry);
  void Discount(const PageEntry& entry);

  const SegmentBook* const book_;
  IndexBatch batch_;
  bool has_changes_ = false;
  std::map<uint32_t, SegmentEntry> changed_;
  std::set<uint32_t> removed_;
};

}  // namespace emberkv
