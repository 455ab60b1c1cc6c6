// Kernels over a run of columns of a panel (linear/multiply.h) in fp32, one table per instruction
// set. Internal to linear/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear/packed_matrix.h"

namespace emberkv {

struct PanelKernels {
  // The values of a block, unscaled: out [kBlockK][32].
  void (*decode_fp8)(const BlockView& block, float* out);
  void (*decode_fp4)(const BlockView& block, float* out);
  void (*decode_bf16)(const BlockView& block, float* out);
  // run_sums[r][32] = x[r][0..depth) . w[0..depth)[32], products exact in fp32.
  void (*multiply_run)(const float* w, int depth, const float* x, size_t x_stride, int num_rows,
                       float* run_sums);
  // values[0..n) rounded to bf16; n is a multiple of 16.
  void (*round_bf16)(float* values, int n);
};

// What fusing would change.
struct StrictPanelKernels {
  // multiply_run for weights whose products are not exact.
  void (*multiply_run)(const float* w, int depth, const float* x, size_t x_stride, int num_rows,
                       float* run_sums);
  // sums[r][32] += scale * run_sums[r][32] with the e8m0 scales of the run's block, if its kind has
  // any.
  void (*add_scaled)(WeightKind kind, const uint8_t* scales, const float* run_sums, int num_rows,
                     float* sums);
};

#define EMBERKV_DECLARE_PANEL_KERNELS(isa)             \
  namespace isa {                                      \
  extern const PanelKernels kPanelKernels;             \
  extern const StrictPanelKernels kStrictPanelKernels; \
  }
EMBERKV_DECLARE_PANEL_KERNELS(portable)
EMBERKV_DECLARE_PANEL_KERNELS(avx2)
EMBERKV_DECLARE_PANEL_KERNELS(avx512)
#undef EMBERKV_DECLARE_PANEL_KERNELS

}  // namespace emberkv
