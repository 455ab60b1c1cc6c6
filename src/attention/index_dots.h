// The dot path of index_kernels.h, for instruction sets with byte dot products. Internal to
// attention/.
#pragma once

#include "attention/index_kernels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__) && defined(__AVX512VBMI__)
#define EMBERKV_INDEX_DOTS

namespace emberkv::EMBERKV_ISA {

inline constexpr int kNarrowSpread =
    3;  // exponents of a narrow key or query head differ by at most this
inline constexpr int kSteps = kScaleGroup / 4;               // of 4 channels, in a scale group
inline constexpr int kGroupCodes = kScaleGroup * kDotHeads;  // bytes of a scale group of 8 heads
inline constexpr int kUnusable = -10000;                     // an exponent that fits no limits

void PrepareDotQuery(const float* q, const float* w, int heads, int dim, DotQuery* query);
void DotScores(const DotKeys& keys, const DotQuery* queries, const int* visible, int num_queries,
               float* scores, size_t stride, uint16_t* left_plain);

}  // namespace emberkv::EMBERKV_ISA

#endif
