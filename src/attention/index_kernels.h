// Kernels that score index keys (numerics 9.1), one table per instruction set. Internal to
// attention/.
//
// Two paths give the same bits. The plain one multiplies decoded values in fp32. The dot path
// multiplies codes as bytes, exactly, where the instruction set has byte dot products, and names
// the tiles in which it cannot promise the plain path's bits: extreme exponents, scales that are
// NaN, queries that are not FP4 values.
//
// The dot of a query head with a key is the sum of its scale groups of 32 channels, ascending; the
// products and the sum within a group are exact (docs/determinism.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

inline constexpr int kPlainTileRows = 64;
inline constexpr int kDotTileRows = 32;
inline constexpr int kDotAhead = 128;    // rows fetched ahead
inline constexpr int kDotMaxGroups = 4;  // scale groups per key: up to 128 channels
inline constexpr int kDotMaxQueries = 16;
inline constexpr int kDotHeads =
    8;  // heads scored together; a query is padded to a multiple with zeros
inline constexpr int kScaleGroup = 32;

// One query as codes. The arrays are the caller's and aligned to 64 bytes; `heads` here is padded.
//
// Values are 2^(exponent - 1) times a whole number of at most 12. A narrow query has exponents
// within 3 of each other in every head; its codes are shifted to the least of the head, so that one
// integer sum runs over all channels.
struct DotQuery {
  int8_t* codes =
      nullptr;  // [heads / 8][dim / 4][8][4]: of 8 channels first the even, then the odd
  int32_t* bias = nullptr;  // [heads], -128 times the sum of the codes: key codes come plus 128
  int32_t* group_bias = nullptr;  // [heads / 8][4][8], the same for each scale group
  float* weights = nullptr;       // [heads]
  float* folded = nullptr;        // [heads], weights times the head's unit; of narrow queries
  float* group_units = nullptr;   // [heads][4], the unit of products with keys of unit 1
  int batches = 0;                // heads / 8
  int groups = 0;                 // dim / 32
  bool exact = false;             // the dot path may be used at all
  bool narrow = false;
  // With key exponents within [low, high] every sum and product is 0 or a normal number, in both
  // paths.
  int low = 0;
  int high = 0;
};

// Keys to be scored: packed rows, anywhere. rows[0 .. count rounded up to 32 + kDotAhead) are
// readable rows; those from `count` on may be any, the ones that will follow if there are.
struct DotKeys {
  const uint8_t* const* rows = nullptr;
  int count = 0;
};

struct IndexKernels {
  // t[c][r] = v[r][c] of a tile v[64][dim].
  void (*transpose)(const float* v, int dim, float* t);
  // d_h = bf(q_h . k), e_h = bf(max(d_h, 0) * w_h), score = bf(sum over h ascending of e_h), for
  // the 64 keys of a transposed tile. q [heads][dim], w [heads].
  void (*plain_scores)(const float* t, int dim, const float* q, const float* w, int heads,
                       float* scores);

  // Null where there are no byte dot products. Fills `query` from q [heads][dim] and w [heads].
  void (*prepare)(const float* q, const float* w, int heads, int dim, DotQuery* query);
  // scores[i * stride + r] of query i and key r < visible[i], and perhaps of a few beyond, never
  // beyond the last tile of 32. Bit i of left_plain[t] is set where tile t must be scored plainly
  // for query i. At most kDotMaxQueries of equal shape.
  void (*dot_scores)(const DotKeys& keys, const DotQuery* queries, const int* visible,
                     int num_queries, float* scores, size_t stride, uint16_t* left_plain);
};

#define EMBERKV_DECLARE_INDEX_KERNELS(isa) \
  namespace isa {                          \
  extern const IndexKernels kIndexKernels; \
  }
EMBERKV_DECLARE_INDEX_KERNELS(portable)
EMBERKV_DECLARE_INDEX_KERNELS(avx2)
EMBERKV_DECLARE_INDEX_KERNELS(avx512)
EMBERKV_DECLARE_INDEX_KERNELS(avx512dot)
#undef EMBERKV_DECLARE_INDEX_KERNELS

const IndexKernels& ActiveIndexKernels();

}  // namespace emberkv
