// Measures the scoring of index keys and the choice of rows (attention/), at the released shapes.
// Used by one thread; `threads` is what a scan may use.
#pragma once

#include <vector>

#include "bench/measurement.h"

namespace emberkv {

std::vector<Measurement> BenchIndex(int rounds, int threads);

}  // namespace emberkv
