// What a step overwrites of its sequences and a repeat of it would read: kept before the step, put back when
// it has failed.
//
// That is the ring slots of the rows that a span's first rows see and its last rows replace, and the tails of
// open groups. Pages need nothing: they take the same rows again. Nor does a span of one row, which replaces
// only what it does not see any more.
//
// Used by one thread at a time, the leader of the StepScheduler; the layout outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/cache_layout.h"
#include "model/step.h"

namespace emberkv {

class StepUndo {
 public:
  explicit StepUndo(const CacheLayout* layout) : layout_(layout) {}

  void Clear() { kept_.clear(); }
  // In place of what was kept before. Throws when there is no memory; nothing is kept then.
  void Keep(std::span<const StepSpan> spans);
  // Puts back what span `i` of those had; nothing, if nothing was kept.
  void Restore(size_t i) const;

  // An upper bound of what is kept for a step of `rows` rows.
  static uint64_t MostBytes(const CacheLayout& layout, int rows);

 private:
  struct Kept {
    StepSpan span;
    size_t at = 0;  // in bytes_
  };

  // Calls visit(bytes, count) for each run of bytes that the span overwrites.
  template <typename Visit>
  void ForEachRun(const StepSpan& span, const Visit& visit) const;

  const CacheLayout* const layout_;
  std::vector<Kept> kept_;
  std::vector<uint8_t> bytes_;
};

}  // namespace emberkv
