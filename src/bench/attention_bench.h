// Measures sparse attention of one token in one layer at the released shape: 64 heads of 512 channels over
// 128 window rows and 512 global rows that lie anywhere. Used by one thread; each of `threads` works on
// tokens of its own.
#pragma once

#include <vector>

#include "bench/measurement.h"

namespace emberkv {

std::vector<Measurement> BenchAttention(int rounds, int threads);

}  // namespace emberkv
