// Pages of equal size in the order of their last use: what one tier of a simulated machine holds.
//
// About 60 bytes of memory per page. A hash table of places with linear probing: a lookup misses
// the CPU's caches twice, where a node-based map would four times. Owned and used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emberkv {

class LruPages {
 public:
  LruPages() : entries_(1), slots_(kFirstSlots) {}

  size_t size() const { return size_; }

  // Makes the page the newest. False where there is none.
  bool Touch(uint64_t page, int64_t now_us);

  void Insert(uint64_t page, int64_t now_us);  // not in yet

  // Both: not empty.
  int64_t oldest_use_us() const { return entries_[entries_[0].newer].used_us; }
  void DropOldest();

 private:
  struct Entry {
    uint64_t page = 0;
    int64_t used_us = 0;
    uint32_t older = 0;
    uint32_t newer = 0;
  };

  struct Slot {
    uint32_t hash = 0;
    uint32_t place = 0;  // in entries_; 0: free
  };
  static constexpr size_t kFirstSlots = 16;  // a power of two, as all sizes of the table

  size_t SlotOf(uint64_t page) const;  // the page's, or the free one where it would go
  void Free(size_t slot);
  void Grow();
  void Link(uint32_t place, int64_t now_us);
  void Unlink(uint32_t place);

  // A ring from the oldest to the newest and back through entry 0, which is no page.
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  std::vector<Slot> slots_;  // at least half of them free
  size_t size_ = 0;
};

}  // namespace emberkv
