// Which keys were seen lately, roughly: a table of fixed size in which the newest four of each place stay,
// and keys may be mistaken for each other or forgotten. For decisions where being wrong costs time only.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "layout/identity.h"

namespace emberkv {

class RecentKeys {
 public:
  // `capacity` is a power of two.
  explicit RecentKeys(size_t capacity) : marks_(capacity) {}

  // Notes the key; says whether it was there before.
  bool Note(const BlockHash& key) {
    uint64_t place = 0, mark = 0;
    std::memcpy(&place, key.bytes.data(), sizeof place);
    std::memcpy(&mark, key.bytes.data() + sizeof place, sizeof mark);
    std::atomic<uint64_t>* const marks = &marks_[place * kWays & (marks_.size() - 1)];
    for (size_t i = 0; i < kWays; ++i) {
      if (marks[i].load(std::memory_order_relaxed) == mark) return true;
    }
    for (size_t i = kWays - 1; i > 0; --i) {
      marks[i].store(marks[i - 1].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    marks[0].store(mark, std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr size_t kWays = 4;

  std::vector<std::atomic<uint64_t>> marks_;
};

}  // namespace emberkv
