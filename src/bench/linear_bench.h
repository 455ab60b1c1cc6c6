// Measures the products with packed weights (linear/) and the mixture of experts of one step, at
// the released shapes. Used by one thread; `threads` is what the products may use.
#pragma once

#include <vector>

#include "bench/measurement.h"

namespace emberkv {

std::vector<Measurement> BenchLinear(int rounds, int threads);

}  // namespace emberkv
