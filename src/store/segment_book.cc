#include "store/segment_book.h"

#include <algorithm>

namespace emberkv {
namespace {

using DeadlineSums = std::map<int64_t, SegmentEntry::Sum>;

void AddTo(const DeadlineSums& some, DeadlineSums* all) {
  for (const auto& [deadline_us, sum] : some) {
    (*all)[deadline_us].pages += sum.pages;
    (*all)[deadline_us].bytes += sum.bytes;
  }
}

SegmentEntry::Sum SumFrom(DeadlineSums::const_iterator begin, const TenantEntry& entry) {
  SegmentEntry::Sum all;
  for (auto it = begin; it != entry.by_deadline.end(); ++it) {
    all.pages += it->second.pages;
    all.bytes += it->second.bytes;
  }
  return all;
}

void CountIn(const PageEntry& page, DeadlineSums* sums) {
  SegmentEntry::Sum& sum = (*sums)[page.deadline_us];
  ++sum.pages;
  sum.bytes += page.record_bytes();
}

void DiscountFrom(const PageEntry& page, DeadlineSums* sums) {
  const auto sum = sums->find(page.deadline_us);
  if (sum == sums->end()) return;
  if (--sum->second.pages == 0) {
    sums->erase(sum);
  } else {
    sum->second.bytes -= std::min(sum->second.bytes, page.record_bytes());
  }
}

}  // namespace

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

int64_t SegmentBook::last_deadline_us() const {
  int64_t last = 0;
  for (const auto& [id, entry] : segments_) last = std::max(last, entry.last_deadline_us());
  return last;
}

void SegmentBook::SetTenant(const TenantEntry& entry) {
  if (entry.by_deadline.empty()) {
    tenants_.erase(entry.tenant);
  } else {
    tenants_[entry.tenant] = entry;
  }
}

bool SegmentBook::is_balanced() const {
  DeadlineSums of_segments, of_tenants;
  for (const auto& [id, entry] : segments_) AddTo(entry.by_deadline, &of_segments);
  for (const auto& [tenant, entry] : tenants_) AddTo(entry.by_deadline, &of_tenants);
  return of_segments == of_tenants;
}

uint64_t SegmentBook::promised_bytes(const Digest& tenant, int64_t now_us) const {
  const auto entry = tenants_.find(tenant);
  return entry == tenants_.end() ? 0 : SumFrom(entry->second.by_deadline.upper_bound(now_us), entry->second).bytes;
}

std::vector<TenantSum> SegmentBook::tenant_sums(int64_t now_us) const {
  std::vector<TenantSum> sums;
  for (const auto& [tenant, entry] : tenants_) {
    const SegmentEntry::Sum all = SumFrom(entry.by_deadline.begin(), entry);
    sums.push_back({tenant, all.pages, all.bytes, promised_bytes(tenant, now_us)});
  }
  return sums;
}

void CountPage(const PageEntry& page, TenantEntry* tenant) {
  tenant->longest_retention_us = std::max(tenant->longest_retention_us, page.retention_us);
  CountIn(page, &tenant->by_deadline);
}

TenantEntry& BookEdit::ChangedTenant(const Digest& tenant) {
  const auto [it, is_new] = changed_tenants_.try_emplace(tenant);
  if (is_new) {
    const auto known = book_->tenants().find(tenant);
    if (known != book_->tenants().end()) it->second = known->second;
    it->second.tenant = tenant;
  }
  return it->second;
}

SegmentEntry& BookEdit::Changed(uint32_t segment) {
  has_changes_ = true;
  const auto [it, is_new] = changed_.try_emplace(segment);
  if (is_new) {
    const auto known = book_->segments().find(segment);
    if (known != book_->segments().end()) it->second = known->second;
    it->second.segment = segment;
  }
  return it->second;
}

void BookEdit::Count(const PageEntry& entry) {
  SegmentEntry& segment = Changed(entry.place.segment);
  CountIn(entry, &segment.by_deadline);
  CountPage(entry, &ChangedTenant(entry.tenant));
  const auto slots = static_cast<uint32_t>(entry.record_bytes() / kSlotBytes);
  segment.filled_slots = std::max(segment.filled_slots, entry.place.slot + slots);
}

void BookEdit::Discount(const PageEntry& entry) {
  DiscountFrom(entry, &Changed(entry.place.segment).by_deadline);
  DiscountFrom(entry, &ChangedTenant(entry.tenant).by_deadline);
}

void BookEdit::AddPage(const BlockHash& key, const PageEntry& entry) {
  Count(entry);
  batch_.PutPage(key, entry);
}

void BookEdit::RemovePage(const BlockHash& key, const PageEntry& entry) {
  Discount(entry);
  batch_.RemovePage(key, entry);
}

void BookEdit::MovePage(const BlockHash& key, const PageEntry& from, const RecordPlace& to) {
  RemovePage(key, from);
  PageEntry moved = from;
  moved.place = to;
  AddPage(key, moved);
}

void BookEdit::ExtendPage(const BlockHash& key, const PageEntry& entry, int64_t deadline_us) {
  Discount(entry);
  PageEntry extended = entry;
  extended.deadline_us = deadline_us;
  Count(extended);
  batch_.ChangeDeadline(key, extended);
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
  for (const auto& [tenant, entry] : changed_tenants_) book->SetTenant(entry);
}

}  // namespace emberkv
