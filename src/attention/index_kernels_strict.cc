#include "attention/index_kernels.h"

#include "attention/index_dots.h"
#include "base/simd.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr int kVectors = kPlainTileRows / kLanes;

void TransposeTile(const float* v, int dim, float* t) {
  for (int r = 0; r < kPlainTileRows; r += kLanes) {
    for (int c = 0; c < dim; c += kLanes) {
      Transpose16(v + static_cast<size_t>(r) * dim + c, dim,
                  t + static_cast<size_t>(c) * kPlainTileRows + r, kPlainTileRows);
    }
  }
}

template <int H>
EMBERKV_INLINE void DotGroup(const float* t, int dim, const float* q, F32x16 (&dots)[H][kVectors]) {
  F32x16 acc[H][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) acc[h][j] = F32x16{};
  }
  for (int c = 0; c < kScaleGroup; ++c) {
    const float* row = t + static_cast<size_t>(c) * kPlainTileRows;
    F32x16 k[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) k[j] = Load(row + kLanes * j);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const float x = q[static_cast<size_t>(h) * dim + c];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) acc[h][j] += x * k[j];
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) dots[h][j] += acc[h][j];
  }
}

template <int H>
EMBERKV_INLINE void ScoreHeads(const float* t, int dim, const float* q, const float* w,
                               F32x16 (&total)[kVectors]) {
  F32x16 dots[H][kVectors] = {};
  for (int c = 0; c < dim; c += kScaleGroup) {
    DotGroup<H>(t + static_cast<size_t>(c) * kPlainTileRows, dim, q + c, dots);
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
    const F32x16 weight = Splat(w[h]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      // Stored keys are finite, and queries of a row that is not were refused with its window row.
      const F32x16 d = Max(RoundBf16Finite(dots[h][j]), F32x16{});
      total[j] += RoundBf16Finite(d * weight);
    }
  }
}

void PlainScores(const float* t, int dim, const float* q, const float* w, int heads,
                 float* scores) {
  F32x16 total[kVectors] = {};
  int h = 0;
  for (; h + 4 <= heads; h += 4) {
    ScoreHeads<4>(t, dim, q + static_cast<size_t>(h) * dim, w + h, total);
  }
  for (; h < heads; ++h) {
    ScoreHeads<1>(t, dim, q + static_cast<size_t>(h) * dim, w + h, total);
  }
  for (int j = 0; j < kVectors; ++j) Store(RoundBf16(total[j]), scores + kLanes * j);
}

}  // namespace

#if defined(EMBERKV_INDEX_DOTS)
const IndexKernels kIndexKernels = {TransposeTile, PlainScores, PrepareDotQuery, DotScores};
#else
const IndexKernels kIndexKernels = {TransposeTile, PlainScores, nullptr, nullptr};
#endif

}  // namespace emberkv::EMBERKV_ISA
