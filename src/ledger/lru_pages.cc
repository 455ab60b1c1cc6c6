#include "ledger/lru_pages.h"

#include <cassert>
#include <utility>

namespace emberkv {
namespace {

// The upper half of a product with 2^64 over the golden ratio: ids may be consecutive numbers.
uint32_t HashOf(uint64_t page) { return static_cast<uint32_t>((page * 0x9e3779b97f4a7c15) >> 32); }

}  // namespace

bool LruPages::Touch(uint64_t page, int64_t now_us) {
  const uint32_t place = slots_[SlotOf(page)].place;
  if (place == 0) return false;
  Unlink(place);
  Link(place, now_us);
  return true;
}

void LruPages::Insert(uint64_t page, int64_t now_us) {
  if (2 * (size_ + 1) > slots_.size()) Grow();
  auto place = static_cast<uint32_t>(entries_.size());
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    place = free_.back();
    free_.pop_back();
  }
  Slot& slot = slots_[SlotOf(page)];
  assert(slot.place == 0);
  slot = {HashOf(page), place};
  ++size_;
  entries_[place].page = page;
  Link(place, now_us);
}

void LruPages::DropOldest() {
  const uint32_t place = entries_[0].newer;
  assert(place != 0);
  Unlink(place);
  Free(SlotOf(entries_[place].page));
  --size_;
  free_.push_back(place);
}

size_t LruPages::SlotOf(uint64_t page) const {
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = HashOf(page);
  size_t slot = hash & mask;
  while (slots_[slot].place != 0 &&
         (slots_[slot].hash != hash || entries_[slots_[slot].place].page != page)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

// Moves up whatever probed past the slot, so that no search ends too early at it.
void LruPages::Free(size_t slot) {
  const size_t mask = slots_.size() - 1;
  for (size_t next = (slot + 1) & mask; slots_[next].place != 0; next = (next + 1) & mask) {
    const size_t home = slots_[next].hash & mask;
    if (((next - home) & mask) < ((next - slot) & mask)) continue;  // begins behind the gap
    slots_[slot] = slots_[next];
    slot = next;
  }
  slots_[slot] = {};
}

void LruPages::Grow() {
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  const size_t mask = slots_.size() - 1;
  for (const Slot& moved : before) {
    if (moved.place == 0) continue;
    size_t slot = moved.hash & mask;
    while (slots_[slot].place != 0) slot = (slot + 1) & mask;
    slots_[slot] = moved;
  }
}

void LruPages::Link(uint32_t place, int64_t now_us) {
  Entry& entry = entries_[place];
  entry.used_us = now_us;
  entry.newer = 0;
  entry.older = entries_[0].older;
  entries_[entry.older].newer = place;
  entries_[0].older = place;
}

void LruPages::Unlink(uint32_t place) {
  const Entry& entry = entries_[place];
  entries_[entry.older].newer = entry.newer;
  entries_[entry.newer].older = entry.older;
}

}  // namespace emberkv
