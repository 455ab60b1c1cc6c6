// The same product by libraries that many use, as contenders. Internal to bench/; nullopt where the
// library was not found: oneDNN when this was built, OpenBLAS when it runs.
#pragma once

#include <optional>

#include "bench/measurement.h"

namespace emberkv {

// y [m][rows] = x [m][cols] W^T, the weights random. `amount` is what one product counts.
struct RivalProduct {
  int rows, cols, m;
  double amount;
};

// OpenBLAS on fp32 weights, which it reads from memory when `copies` of them exceed the caches.
std::optional<Contender> OpenBlasRival(const RivalProduct& product, int copies, int threads);

// oneDNN on bf16 weights that it has laid out as it likes.
std::optional<Contender> OneDnnRival(const RivalProduct& product, int threads);

}  // namespace emberkv
