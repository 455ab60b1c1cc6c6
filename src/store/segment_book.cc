#include "store/segment_book.h"

#include <algorithm>

namespace emberkv {
namespace {

void CountIn(SumsByDeadline* sums, const PageEntry& page) {
  PageSum& sum = (*sums)[page.deadline_us];
  ++sum.pages;
  sum.bytes += page.record_bytes();
}

void DiscountFrom(SumsByDeadline* sums, const PageEntry& page) {
  const auto sum = sums->find(page.deadline_us);
  if (sum == sums->end()) return;
  if (--sum->second.pages == 0) {
    sums->erase(sum);
  } else {
    sum->second.bytes -= std::min(sum->second.bytes, page.record_bytes());
  }
}

// The entry as changed so far, at first the book's.
template <class Entries>
auto& ChangedIn(const Entries& known, const typename Entries::key_type& key, Entries* changed) {
  const auto [it, is_new] = changed->try_emplace(key);
  if (is_new) {
    const auto before = known.find(key);
    if (before != known.end()) it->second = before->second;
  }
  return it->second;
}

}  // namespace

void CountPage(const PageEntry& page, TenantEntry* tenant) {
  tenant->tenant = page.tenant;
  tenant->longest_retention_us = std::max(tenant->longest_retention_us, page.retention_us);
  CountIn(&tenant->by_deadline, page);
}

void SegmentBook::Set(const TenantEntry& entry) {
  if (entry.by_deadline.empty()) {
    tenants_.erase(entry.tenant);
  } else {
    tenants_[entry.tenant] = entry;
  }
}

uint64_t SegmentBook::pages() const {
  uint64_t pages = 0;
  for (const auto& [id, entry] : segments_) pages += entry.pages();
  return pages;
}

uint64_t SegmentBook::promised_bytes(int64_t now_us) const {
  uint64_t bytes = 0;
  for (const auto& [id, entry] : segments_) bytes += entry.PromisedAt(now_us).bytes;
  return bytes;
}

std::vector<DeadlineSum> SegmentBook::deadlines(int64_t now_us) const {
  std::map<int64_t, DeadlineSum> sums;
  for (const auto& [id, entry] : segments_) {
    for (auto it = entry.by_deadline.upper_bound(now_us); it != entry.by_deadline.end(); ++it) {
      DeadlineSum& sum = sums[it->first];
      sum.left_us = it->first - now_us;
      sum.pages += it->second.pages;
      sum.bytes += it->second.bytes;
    }
  }
  std::vector<DeadlineSum> list;
  for (const auto& [deadline_us, sum] : sums) list.push_back(sum);
  return list;
}

uint64_t SegmentBook::promised_bytes(const Digest& tenant, int64_t now_us) const {
  const auto known = tenants_.find(tenant);
  return known == tenants_.end() ? 0 : PromisedOf(known->second.by_deadline, now_us).bytes;
}

std::vector<TenantSum> SegmentBook::tenant_sums(int64_t now_us) const {
  std::vector<TenantSum> sums;
  for (const auto& [tenant, entry] : tenants_) {
    const PageSum all = SumOf(entry.by_deadline);
    sums.push_back({tenant, all.pages, all.bytes, PromisedOf(entry.by_deadline, now_us).bytes});
  }
  return sums;
}

int64_t SegmentBook::last_use_us(int64_t usual_retention_us) const {
  int64_t last_us = 0;
  for (const auto& [tenant, entry] : tenants_) {
    const int64_t longest_us = std::max(usual_retention_us, entry.longest_retention_us);
    last_us = std::max(last_us, entry.by_deadline.rbegin()->first - longest_us);
  }
  return last_us;
}

SegmentEntry& BookEdit::Changed(uint32_t segment) {
  has_changes_ = true;
  SegmentEntry& entry = ChangedIn(book_->segments(), segment, &changed_);
  entry.segment = segment;
  return entry;
}

TenantEntry& BookEdit::Changed(const Digest& tenant) {
  TenantEntry& entry = ChangedIn(book_->tenants(), tenant, &changed_tenants_);
  entry.tenant = tenant;
  return entry;
}

void BookEdit::Count(const PageEntry& entry) {
  SegmentEntry& segment = Changed(entry.place.segment);
  CountIn(&segment.by_deadline, entry);
  const auto slots = static_cast<uint32_t>(entry.record_bytes() / kSlotBytes);
  segment.filled_slots = std::max(segment.filled_slots, entry.place.slot + slots);
  CountPage(entry, &Changed(entry.tenant));
}

void BookEdit::Discount(const PageEntry& entry) {
  DiscountFrom(&Changed(entry.place.segment).by_deadline, entry);
  DiscountFrom(&Changed(entry.tenant).by_deadline, entry);
}

void BookEdit::AddPage(const BlockHash& key, const PageEntry& entry) {
  Count(entry);
  misses_.emplace_back(key, GetOutcome::kNeverSeen);
  batch_.PutPage(key, entry);
}

void BookEdit::RemovePage(const BlockHash& key, const PageEntry& entry, GetOutcome missed_as) {
  Discount(entry);
  misses_.emplace_back(key, missed_as);
  batch_.RemovePage(key, entry);
}

void BookEdit::MovePage(const BlockHash& key, const PageEntry& from, const RecordPlace& to) {
  Discount(from);
  batch_.RemovePage(key, from);
  PageEntry moved = from;
  moved.place = to;
  AddPage(key, moved);
}

void BookEdit::PromisePage(const BlockHash& key, const PageEntry& before, int64_t deadline_us,
                           int64_t retention_us) {
  Discount(before);
  PageEntry page = before;
  page.deadline_us = deadline_us;
  page.retention_us = retention_us;
  Count(page);
  batch_.ChangePromise(key, page);
}

void BookEdit::StartGeneration(uint32_t segment, uint64_t generation) {
  SegmentEntry& entry = Changed(segment);
  entry.generation = generation;
  entry.filled_slots = 0;
  entry.by_deadline.clear();
}

void BookEdit::RemoveSegment(uint32_t segment) {
  has_changes_ = true;
  removed_.insert(segment);
}

IndexBatch& BookEdit::Batch() {
  for (const auto& [id, entry] : changed_) {
    if (!removed_.contains(id)) batch_.PutSegment(entry);
  }
  for (const uint32_t id : removed_) batch_.RemoveSegment(id);
  for (const auto& [tenant, entry] : changed_tenants_) {
    if (entry.by_deadline.empty()) {
      batch_.RemoveTenant(tenant);
    } else {
      batch_.PutTenant(entry);
    }
  }
  return batch_;
}

void BookEdit::Apply(SegmentBook* book) const {
  for (const auto& [id, entry] : changed_) book->Set(entry);
  for (const uint32_t id : removed_) book->Remove(id);
  for (const auto& [tenant, entry] : changed_tenants_) book->Set(entry);
}

}  // namespace emberkv
