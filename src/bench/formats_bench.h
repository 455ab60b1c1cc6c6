// Measures the row codecs (formats/) on rows of 512 channels. Used by one thread; rows from memory are shared
// between `threads`, and what stays in the first cache is measured with one.
#pragma once

#include <vector>

#include "bench/measurement.h"

namespace emberkv {

std::vector<Measurement> BenchFormats(int rounds, int threads);

}  // namespace emberkv
