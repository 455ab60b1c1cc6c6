#include "store/segment_book.h"

#include <algorithm>

namespace emberkv {

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
  SegmentEntry::Sum& sum = segment.by_deadline[entry.deadline_us];
  ++sum.pages;
  sum.bytes += entry.record_bytes();
  const auto slots = static_cast<uint32_t>(entry.record_bytes() / kSlotBytes);
  segment.filled_slots = std::max(segment.filled_slots, entry.place.slot + slots);
}

void BookEdit::Discount(const PageEntry& entry) {
  SegmentEntry& segment = Changed(entry.place.segment);
  const auto sum = segment.by_deadline.find(entry.deadline_us);
  if (sum == segment.by_deadline.end()) return;
  if (--sum->second.pages == 0) {
    segment.by_deadline.erase(sum);
  } else {
    sum->second.bytes -= std::min(sum->second.bytes, entry.record_bytes());
  }
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
  return batch_;
}

void BookEdit::Apply(SegmentBook* book) const {
  for (const auto& [id, entry] : changed_) book->Set(entry);
  for (const uint32_t id : removed_) book->Remove(id);
}

}  // namespace emberkv
