// The product of some columns of a panel with rows of input. Included by the two kernel sources
// that differ only in whether products may be fused with additions (cmake/rooms.cmake).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/simd.h"
#include "linear/panel_kernels.h"

namespace emberkv {

// out[r][0..31] = sum over k in [0, depth), ascending, of x[r][k] * w[k][0..31], for R rows.
template <int R>
EMBERKV_INLINE void MultiplyRows(const float* w, int depth, const float* x, size_t x_stride,
                                 float* out) {
  F32x16 acc[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = F32x16{};
  for (int k = 0; k < depth; ++k) {
    const F32x16 w0 = Load(w + 32 * k);
    const F32x16 w1 = Load(w + 32 * k + 16);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float xk = x[r * x_stride + k];
      acc[r][0] += xk * w0;
      acc[r][1] += xk * w1;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Store(acc[r][0], out + 32 * r);
    Store(acc[r][1], out + 32 * r + 16);
  }
}

EMBERKV_INLINE void MultiplyAllRows(const float* w, int depth, const float* x, size_t x_stride,
                                    int num_rows, float* out) {
  int r = 0;
  for (; r + 8 <= num_rows; r += 8)
    MultiplyRows<8>(w, depth, x + r * x_stride, x_stride, out + 32 * r);
  for (; r + 4 <= num_rows; r += 4)
    MultiplyRows<4>(w, depth, x + r * x_stride, x_stride, out + 32 * r);
  for (; r < num_rows; ++r) MultiplyRows<1>(w, depth, x + r * x_stride, x_stride, out + 32 * r);
}

}  // namespace emberkv
