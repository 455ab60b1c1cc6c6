#include "linear/panel_kernels.h"
#include "linear/panel_product.h"

namespace emberkv::EMBERKV_ISA {
namespace {

void Accumulate(const float* w, int depth, const float* x, size_t x_stride, int num_rows,
                float* sums) {
  AccumulateTile(w, depth, x, x_stride, num_rows, sums);
}

}  // namespace

const StrictAccumulate kStrictAccumulate = Accumulate;

}  // namespace emberkv::EMBERKV_ISA
