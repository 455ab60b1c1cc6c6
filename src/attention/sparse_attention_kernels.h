// Kernels of sparse attention over a tile of up to 64 cache rows, one table per instruction set. Internal to
// attention/.
//
// Products of bf16 values are summed in fp32, in ascending order. They lie in pairs of 32 bits, the first
// value in the upper half, which VDPBF16PS adds first. Layouts, where `lanes` is `heads` rounded up to a
// multiple of 16:
//
//   q   [dim / 2][lanes] pairs of channels            s   [rows][lanes] fp32
//   k   [rows][dim / 2]  pairs of channels            p   [rows / 2][lanes] pairs of rows
//   v   [dim / 32][kStripPairs][32] pairs of rows     o   [dim / 32][lanes][32] fp32
//
// dim is a multiple of 32 and `rows` is even. Arrays begin on a multiple of 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

inline constexpr int kAttentionTileRows = 64;

// Channels of a strip of v and o, and the room for pairs of rows in one: two more than a tile has, so that
// strips do not share cache sets.
inline constexpr int kStripChannels = 32;
inline constexpr int kStripPairs = kAttentionTileRows / 2 + 2;

// Queries of smaller magnitude count as zero, and so does the weight exp(x) of a row with x below
// kLeastExponent, which is 2^-80: no product with a value of an encoded row, nor a sum of such products, is
// then below the normal range, where VDPBF16PS flushes to zero and other code does not.
inline constexpr float kLeastOperand = 0x1p-80f;
inline constexpr float kLeastExponent = -55.45f;

struct SparseAttentionKernels {
  // q from [heads][dim] bf16 values; lanes beyond `heads` are zero.
  void (*pack_queries)(const float* q, int heads, int dim, uint32_t* packed);

  // s[r][h] = q_h . k_r, channels ascending; and v, the same rows as k.
  void (*scores)(const uint32_t* q, const uint32_t* k, int rows, int lanes, int dim, float* s, uint32_t* v);

  // A step of the online softmax (numerics 10): m' = max(m, max s * scale), rescale = exp(m - m'),
  // w = exp(s * scale - m'), l = l * rescale + sum of w, p = bf(w). The sum has 16 parts, row r in part r %
  // 16, joined by the tree of base/simd.h. Rows whose bit in `live` is not set have w = 0 and no part in the
  // maximum; s is overwritten there.
  void (*softmax)(float* s, int rows, uint64_t live, float scale, int lanes, float* m, float* l,
                  float* rescale, uint32_t* p);

  // o[h] = o[h] * rescale[h] + (sum of p[r][h] * v[r], rows ascending, from zero), for one strip of v and
  // o and the `heads` heads from which p, rescale and o start.
  void (*weigh)(const uint32_t* p, const uint32_t* v, int rows, int heads, int lanes, const float* rescale,
                float* o);

  // out[h] = bf(o / (l + exp(sink - m))), [heads][dim].
  void (*finish)(const float* o, const float* m, const float* l, const float* sink, int heads, int dim,
                 float* out);
};

inline constexpr int AttentionLanes(int heads) { return (heads + 15) / 16 * 16; }

#define EMBERKV_DECLARE_SPARSE_ATTENTION_KERNELS(isa)          \
  namespace isa {                                              \
  extern const SparseAttentionKernels kSparseAttentionKernels; \
  }
EMBERKV_DECLARE_SPARSE_ATTENTION_KERNELS(portable)
EMBERKV_DECLARE_SPARSE_ATTENTION_KERNELS(avx2)
EMBERKV_DECLARE_SPARSE_ATTENTION_KERNELS(avx512)
EMBERKV_DECLARE_SPARSE_ATTENTION_KERNELS(avx512dot)
#undef EMBERKV_DECLARE_SPARSE_ATTENTION_KERNELS

}  // namespace emberkv
