#include "store/miss_reasons.h"

#include <algorithm>
#include <utility>

namespace emberkv {

void MissReasons::Record(const BlockHash& key, GetOutcome reason) {
  if (capacity_ == 0) return;
  Forget(key);
  const uint64_t serial = next_serial_++;
  const auto number = static_cast<uint32_t>(serial % capacity_);
  Empty(number);
  Fill({.number = number, .serial = serial, .reason = reason, .key = key});
  MarkChanged(number);
}

void MissReasons::Forget(const BlockHash& key) {
  const auto found = numbers_.find(key);
  if (found == numbers_.end()) return;
  const uint32_t number = found->second;
  Empty(number);
  MarkChanged(number);
}

GetOutcome MissReasons::ReasonOf(const BlockHash& key) const {
  const auto number = numbers_.find(key);
  return number == numbers_.end() ? GetOutcome::kNeverSeen : ring_[number->second].row.reason;
}

size_t MissReasons::count(GetOutcome reason) const {
  const auto count = counts_.find(reason);
  return count == counts_.end() ? 0 : count->second;
}

void MissReasons::Adopt(std::span<const MissRow> rows) {
  numbers_.reserve(std::min(rows.size(), capacity_));
  for (const MissRow& row : rows) {
    next_serial_ = std::max(next_serial_, row.serial + 1);
    if (capacity_ == 0 || row.serial % capacity_ != row.number) continue;
    const auto other = numbers_.find(row.key);
    if (other == numbers_.end()) {
      Fill(row);
    } else if (ring_[other->second].row.serial < row.serial) {
      Empty(other->second);
      Fill(row);
    }
  }
}

std::vector<MissRow> MissReasons::TakeChanges() {
  std::vector<MissRow> rows;
  for (const uint32_t number : std::exchange(changed_, {})) {
    Place& place = ring_[number];
    place.is_changed = false;
    rows.push_back(place.row);
  }
  return rows;
}

void MissReasons::PutBack(std::span<const MissRow> rows) {
  for (const MissRow& row : rows) MarkChanged(row.number);
}

void MissReasons::MarkChanged(uint32_t number) {
  if (!std::exchange(ring_[number].is_changed, true)) changed_.push_back(number);
}

void MissReasons::Fill(const MissRow& row) {
  if (row.number >= ring_.size()) ring_.resize(row.number + size_t{1});
  ring_[row.number].row = row;
  numbers_[row.key] = row.number;
  ++counts_[row.reason];
}

void MissReasons::Empty(uint32_t number) {
  if (number >= ring_.size()) return;
  MissRow& row = ring_[number].row;
  if (row.reason == GetOutcome::kNeverSeen) return;
  --counts_[row.reason];
  numbers_.erase(row.key);
  row.reason = GetOutcome::kNeverSeen;
}

}  // namespace emberkv
