// Kernels over one 32-row panel, one table per instruction set. Internal to linear/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

// One K block of a panel: w[k][32] fp32 from packed bytes. `k` is a multiple of 32 (of 2 for FP4).
struct PanelKernels {
  // data/scales point at the panel; k0 is the first of `depth` columns; out is [depth][32].
  void (*decode_fp8)(const uint8_t* data, const uint8_t* scales, int k0, int depth, float* out);
  void (*decode_fp4)(const uint8_t* data, const uint8_t* scales, int k0, int depth, float* out);
  void (*decode_bf16)(const uint8_t* data, int k0, int depth, float* out);
  // sums[r][32] += x[r][0..depth) . w[0..depth)[32], products exact in fp32.
  void (*accumulate)(const float* w, int depth, const float* x, size_t x_stride, int num_rows,
                     float* sums);
  // values[0..n) rounded to bf16; n is a multiple of 16.
  void (*round_bf16)(float* values, int n);
};

// The same product for fp32 weights, where fusing would change bits.
using StrictAccumulate = void (*)(const float* w, int depth, const float* x, size_t x_stride,
                                  int num_rows, float* sums);

#define EMBERKV_DECLARE_PANEL_KERNELS(isa) \
  namespace isa {                          \
  extern const PanelKernels kPanelKernels; \
  extern const StrictAccumulate kStrictAccumulate; \
  }
EMBERKV_DECLARE_PANEL_KERNELS(portable)
EMBERKV_DECLARE_PANEL_KERNELS(avx2)
EMBERKV_DECLARE_PANEL_KERNELS(avx512)
#undef EMBERKV_DECLARE_PANEL_KERNELS

}  // namespace emberkv
