// How a model is loaded. A plain value.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "base/thread_pool.h"

namespace emberkv {

struct LoadOptions {
  // Packs the weights; null: threads of the load's own, as many as the machine has.
  ThreadPool* pool = nullptr;

  // Of packed weights. What every token needs is packed in any case. The routed experts are packed where
  // all fit beside it; else they are read from the files when they are used, and kept in what is left.
  uint64_t weight_memory_bytes = std::numeric_limits<uint64_t>::max();

  // Called with the fraction done, when set: from any thread of the pool, one call at a time.
  std::function<void(double)> progress;
};

}  // namespace emberkv
