// The memory that one model call needs besides weights and caches: activations of its rows and tiles of
// its threads. It does not depend on the context, because scores are computed tile by tile.
//
// A pure function; any thread. tests/golden/invariance_test.cc holds it against what a Step really uses.
#pragma once

#include <cstdint>

#include "layout/cache_layout.h"
#include "layout/model_config.h"

namespace emberkv {

struct ScratchBytes {
  uint64_t rows = 0;     // activations and selections of all rows of the call
  uint64_t threads = 0;  // tiles and top-k buffers of all threads

  uint64_t total() const { return rows + threads; }
};

// An upper bound for a call of `rows` rows on `threads` threads.
ScratchBytes StepScratch(const ModelConfig& config, const CacheLayout& layout, int rows, int threads);

}  // namespace emberkv
