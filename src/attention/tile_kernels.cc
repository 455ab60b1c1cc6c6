#include "attention/tile_kernels.h"

#include "base/simd.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr int kVectors = kTileRows / kLanes;

void TransposeTile(const float* v, int dim, float* t) {
  for (int r = 0; r < kTileRows; r += kLanes) {
    for (int c = 0; c < dim; c += kLanes) {
      Transpose16(v + static_cast<size_t>(r) * dim + c, dim, t + static_cast<size_t>(c) * kTileRows + r,
                  kTileRows);
    }
  }
}

// Dots of H consecutive heads with all 64 rows, channels ascending.
template <int H>
EMBERKV_INLINE void DotHeads(const float* t, int dim, const float* q, F32x16 (&acc)[H][kVectors]) {
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) acc[h][j] = F32x16{};
  }
  for (int c = 0; c < dim; ++c) {
    const float* row = t + static_cast<size_t>(c) * kTileRows;
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
}

template <int H>
EMBERKV_INLINE void ScoreHeads(const float* t, int dim, const float* q, const float* w,
                               F32x16 (&total)[kVectors]) {
  F32x16 acc[H][kVectors];
  DotHeads<H>(t, dim, q, acc);
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
    const F32x16 weight = Splat(w[h]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      // Stored keys are finite, and queries of a row that is not were refused with its window row.
      const F32x16 d = Max(RoundBf16Finite(acc[h][j]), F32x16{});
      total[j] += RoundBf16Finite(d * weight);
    }
  }
}

void IndexScores(const float* t, int dim, const float* q, const float* w, int heads, float* scores) {
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

template <int H>
EMBERKV_INLINE void StoreDots(const float* t, int dim, const float* q, float* s) {
  F32x16 acc[H][kVectors];
  DotHeads<H>(t, dim, q, acc);
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) Store(acc[h][j], s + h * kTileRows + kLanes * j);
  }
}

void Dots(const float* t, int dim, const float* q, int heads, float* s) {
  int h = 0;
  for (; h + 4 <= heads; h += 4) {
    StoreDots<4>(t, dim, q + static_cast<size_t>(h) * dim, s + h * kTileRows);
  }
  for (; h < heads; ++h) {
    StoreDots<1>(t, dim, q + static_cast<size_t>(h) * dim, s + h * kTileRows);
  }
}

// H heads x 32 channels starting at channel c.
template <int H>
EMBERKV_INLINE void WeightedChannels(const float* p, const float* v, int dim, float* o) {
  F32x16 acc[H][2];
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) acc[h][0] = acc[h][1] = F32x16{};
  for (int r = 0; r < kTileRows; ++r) {
    const F32x16 v0 = Load(v + static_cast<size_t>(r) * dim);
    const F32x16 v1 = Load(v + static_cast<size_t>(r) * dim + kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const float x = p[h * kTileRows + r];
      acc[h][0] += x * v0;
      acc[h][1] += x * v1;
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
    float* out = o + static_cast<size_t>(h) * dim;
    Store(Load(out) + acc[h][0], out);
    Store(Load(out + kLanes) + acc[h][1], out + kLanes);
  }
}

void WeightedRows(const float* p, const float* v, int dim, int heads, float* o) {
  int h = 0;
  for (; h + 4 <= heads; h += 4) {
    for (int c = 0; c < dim; c += 32) {
      WeightedChannels<4>(p + h * kTileRows, v + c, dim, o + static_cast<size_t>(h) * dim + c);
    }
  }
  for (; h < heads; ++h) {
    for (int c = 0; c < dim; c += 32) {
      WeightedChannels<1>(p + h * kTileRows, v + c, dim, o + static_cast<size_t>(h) * dim + c);
    }
  }
}

}  // namespace

const TileKernels kTileKernels = {TransposeTile, IndexScores, Dots, WeightedRows};

}  // namespace emberkv::EMBERKV_ISA
