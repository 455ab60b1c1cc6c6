// Vectors of one register and the dot of bf16 pairs, for sparse_attention_kernels_strict.cc only.
//
// VDPBF16PS adds the product of the upper halves first, then that of the lower. Where it is missing the pair
// is taken apart; the products are exact in fp32, so that a fused and a separate addition round the same
// number.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/simd.h"

namespace emberkv {
namespace EMBERKV_ISA {

#if defined(__AVX512F__)
inline constexpr int kWidth = 16;
#elif defined(__AVX2__)
inline constexpr int kWidth = 8;
#else
inline constexpr int kWidth = 4;
#endif

typedef float Sums __attribute__((vector_size(4 * kWidth)));
typedef uint32_t PairBits __attribute__((vector_size(4 * kWidth)));

EMBERKV_INLINE Sums LoadSums(const float* p) {
  Sums v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
EMBERKV_INLINE void StoreSums(Sums v, float* p) { std::memcpy(p, &v, sizeof v); }

#if defined(__AVX512BF16__)

typedef __m512bh Pairs;

EMBERKV_INLINE Pairs LoadPairs(const void* p) { return (Pairs)_mm512_loadu_si512(p); }

EMBERKV_INLINE Pairs SplatPair(const void* p) {
  int32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return (Pairs)_mm512_set1_epi32(bits);
}

EMBERKV_INLINE Sums AddDot(Sums sum, Pairs a, Pairs b) { return (Sums)_mm512_dpbf16_ps((__m512)sum, a, b); }

#else

struct Pairs {
  Sums first, second;
};

EMBERKV_INLINE Pairs TakeApart(PairBits bits) { return {(Sums)(bits & 0xffff0000u), (Sums)(bits << 16)}; }

EMBERKV_INLINE Pairs LoadPairs(const void* p) {
  PairBits bits;
  std::memcpy(&bits, p, sizeof bits);
  return TakeApart(bits);
}

EMBERKV_INLINE Pairs SplatPair(const void* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return TakeApart(bits - PairBits{});
}

EMBERKV_INLINE Sums AddExact(Sums sum, Sums a, Sums b) {
#if defined(__AVX512F__)
  return (Sums)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
  return (Sums)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#else
  return sum + a * b;
#endif
}

EMBERKV_INLINE Sums AddDot(Sums sum, Pairs a, Pairs b) {
  return AddExact(AddExact(sum, a.first, b.first), a.second, b.second);
}

#endif

// 32 pairs of rows, one per channel, out of 16 pairs of channels of each of two rows.
EMBERKV_INLINE void PairUp(const uint32_t* first, const uint32_t* second, uint32_t* pairs) {
#if defined(__AVX512F__)
  // Words of the second row go into lower halves, and of each pair of words the upper is the first channel.
  const __m512i low_half = _mm512_set_epi16(14, 46, 15, 47, 12, 44, 13, 45, 10, 42, 11, 43, 8, 40, 9, 41, 6,
                                            38, 7, 39, 4, 36, 5, 37, 2, 34, 3, 35, 0, 32, 1, 33);
  const __m512i high_half = _mm512_or_si512(low_half, _mm512_set1_epi16(16));
  const __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
  _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(a, low_half, b));
  _mm512_storeu_si512(pairs + 16, _mm512_permutex2var_epi16(a, high_half, b));
#else
  for (int i = 0; i < 16; ++i) {
    pairs[2 * i] = (first[i] & 0xffff0000u) | second[i] >> 16;
    pairs[2 * i + 1] = first[i] << 16 | (second[i] & 0xffffu);
  }
#endif
}

}  // namespace EMBERKV_ISA
}  // namespace emberkv
