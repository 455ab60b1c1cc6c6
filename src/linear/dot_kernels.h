// Products of one panel by VDPBF16PS, for CPUs that have it. Internal to linear/.
//
// The instruction adds two products to a sum, each with one rounding, as fp32 arithmetic does, but
// takes numbers below the normal range for zero. It therefore runs only where none can occur: every
// input is 0 or has an exponent within +-kInputRange, every unscaled weight is 0 or within
// +-kWeightRange (FP8 and FP4 always are). Partial sums are then multiples of 2^-(kInputRange + 7 +
// kWeightRange + 7) >= 2^-126, the least normal number, and far below 2^128.
//
// Scales are multiplied after the sum, as fp32. For more than 8 rows, and FP8 for more than 4, scales
// within +-kFoldRange are put into the weights before, which moves a block's sum by a power of two and
// no bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear/packed_matrix.h"

namespace emberkv {

inline constexpr int kWordsPerBlock = kBlockK / 2;  // of packed input

inline constexpr int kInputRange = 66;
inline constexpr int kWeightRange = 46;
inline constexpr int kFoldRange = 40;
static_assert(kInputRange + 7 + kWeightRange + 7 <= 126);
static_assert(kInputRange + 7 + 9 + kFoldRange <= 126);  // the least code is 2^-9
static_assert(kInputRange + 1 + 9 + kFoldRange + 7 <= 127);  // the largest is below 2^9

// Whether the fp32 with these bits is 0 or of an exponent within +-range. False for NaN and
// infinities.
constexpr bool IsInRange(uint32_t bits, uint32_t range) {
  const uint32_t exponent = (bits >> 23) & 255u;
  return (bits & 0x7fffffffu) == 0 || exponent - (127u - range) <= 2 * range;
}

struct DotKernels {
  // Rows x [num_rows][cols], x_stride apart, as bf16 pairs: packed[b * block_stride + 16 * r ...]
  // is block b of row r, even k in the upper half of a word. False if an input is out of range:
  // `packed` is then of no use.
  bool (*pack)(const float* x, size_t x_stride, int num_rows, int cols, size_t block_stride,
               uint32_t* packed);
  // sums[r][32] = x[r] . panel, for rows packed with a block stride of 16 * num_rows.
  void (*multiply)(const PanelView& panel, const uint32_t* packed, int num_rows, float* sums);
};

// Empty (nullptr) for the sets without the instruction.
#define EMBERKV_DECLARE_DOT_KERNELS(isa) \
  namespace isa {                        \
  extern const DotKernels kDotKernels;   \
  }
EMBERKV_DECLARE_DOT_KERNELS(portable)
EMBERKV_DECLARE_DOT_KERNELS(avx2)
EMBERKV_DECLARE_DOT_KERNELS(avx512)
EMBERKV_DECLARE_DOT_KERNELS(avx512dot)
#undef EMBERKV_DECLARE_DOT_KERNELS

}  // namespace emberkv
