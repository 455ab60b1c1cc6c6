#include "linear/panel_kernels.h"
#include "linear/panel_product.h"

namespace emberkv::EMBERKV_ISA {
namespace {

void MultiplyRun(const float* w, int depth, const float* x, size_t x_stride, int num_rows,
                 float* run_sums) {
  MultiplyAllRows(w, depth, x, x_stride, num_rows, run_sums);
}

// 16 e8m0 codes as fp32; code 0 is the subnormal 2^-127, code 255 NaN.
EMBERKV_INLINE F32x16 ScaleValues(U32x16 codes) {
  const U32x16 zero = (U32x16)(codes == 0u);
  const U32x16 nan = (U32x16)(codes == 255u);
  return AsFloat((codes << 23) | (zero & 0x00400000u) | (nan & 0x00400000u));
}

void AddScaled(WeightKind kind, const uint8_t* scales, const float* run_sums, int num_rows,
               float* sums) {
  F32x16 scale[2] = {Splat(1.0f), Splat(1.0f)};
  if (kind == WeightKind::kFp8) scale[0] = scale[1] = ScaleValues(SplatU(scales[0]));
  if (kind == WeightKind::kFp4) {
    scale[0] = ScaleValues(LoadU8(scales));
    scale[1] = ScaleValues(LoadU8(scales + 16));
  }
  for (int i = 0; i < num_rows * kPanelRows; i += 2 * kLanes) {
    Store(Load(sums + i) + scale[0] * Load(run_sums + i), sums + i);
    Store(Load(sums + i + kLanes) + scale[1] * Load(run_sums + i + kLanes), sums + i + kLanes);
  }
}

}  // namespace

const StrictPanelKernels kStrictPanelKernels = {MultiplyRun, AddScaled};

}  // namespace emberkv::EMBERKV_ISA
