// Kernels over a tile of 64 cache rows, one table per instruction set. Internal to attention/.
//
// A tile is kept twice: by rows, v[64][dim], and by channels, t[dim][64]. dim is a multiple of 32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

inline constexpr int kTileRows = 64;

struct TileKernels {
  // t[c][r] = v[r][c].
  void (*transpose)(const float* v, int dim, float* t);
  // Index scores of one query against the tile (numerics 9.1): d_h = bf(q_h . k), e_h = bf(relu(d_h) *
  // w_h), score = bf(sum over h ascending of e_h). q [heads][dim], w [heads], scores [64].
  void (*index_scores)(const float* t, int dim, const float* q, const float* w, int heads,
                       float* scores);
  // s[h][64] = q_h . k over the tile, unscaled. q [heads][dim].
  void (*dots)(const float* t, int dim, const float* q, int heads, float* s);
  // o[h][dim] += sum over rows r ascending of p[h][r] * v[r]. The sum starts at zero.
  void (*weighted_rows)(const float* p, const float* v, int dim, int heads, float* o);
};

// One step of the online softmax (numerics 10), where fusing would change bits.
struct SoftmaxKernels {
  // For each head: m' = max(m, max s*scale), a = exp(m - m'), p = exp(s*scale - m'), l = l*a + sum p,
  // o = o*a; s is overwritten with p rounded to bf16. `penalty` [64] is 0 for a column that takes part
  // and -inf for an empty one (p = 0). s [heads][64], m and l [heads], o [heads][dim].
  void (*step)(float* s, const float* penalty, float scale, int heads, int dim, float* m, float* l,
               float* o);
  // out[h] = bf(o / (l + exp(sink - m))).
  void (*finish)(const float* o, const float* m, const float* l, const float* sink, int heads, int dim,
                 float* out);
};

#define EMBERKV_DECLARE_TILE_KERNELS(isa)    \
  namespace isa {                            \
  extern const TileKernels kTileKernels;     \
  extern const SoftmaxKernels kSoftmaxKernels; \
  }
EMBERKV_DECLARE_TILE_KERNELS(portable)
EMBERKV_DECLARE_TILE_KERNELS(avx2)
EMBERKV_DECLARE_TILE_KERNELS(avx512)
#undef EMBERKV_DECLARE_TILE_KERNELS

const TileKernels& ActiveTileKernels();
const SoftmaxKernels& ActiveSoftmaxKernels();

}  // namespace emberkv
