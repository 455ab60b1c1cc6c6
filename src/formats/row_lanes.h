// Vectors of one register for the row kernels: 16 lanes on AVX-512, 8 on AVX2, 4 elsewhere.
//
// base/simd.h gives every instruction set 16 lanes, which suits long sums of floats. Packing moves
// between floats, their bits and bytes all the time, and g++ 12 sends a vector wider than a
// register through memory at each such step. No result here depends on the width. For
// row_kernels_strict.cc only; everything is forced inline, for the reason given in base/simd.h.
#pragma once

#include <cstddef>
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

typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));
typedef int32_t SignedWords __attribute__((vector_size(4 * kWidth)));

EMBERKV_INLINE Floats Fill(float x) { return x - Floats{}; }
EMBERKV_INLINE Words FillBits(uint32_t x) { return x - Words{}; }
EMBERKV_INLINE Floats ToFloats(Words v) { return (Floats)v; }
EMBERKV_INLINE Words ToBits(Floats v) { return (Words)v; }

EMBERKV_INLINE Floats LoadFloats(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
EMBERKV_INLINE void StoreFloats(Floats v, float* p) { std::memcpy(p, &v, sizeof v); }

// The lanes as an array, whose elements are then spread over vectors one by one. A load does that
// for nothing; without the barrier g++ uses shuffles instead, which decoding has no room for.
EMBERKV_INLINE void StoreLanes(Floats v, float (&lanes)[kWidth]) {
  StoreFloats(v, lanes);
  asm("" : "+m"(lanes));
}

// Lane-wise maximum and minimum of values below 2^31. The bits of a float without its sign order
// like the float, with infinities and NaNs above all finite values.
EMBERKV_INLINE Words MaxBits(Words a, Words b) {
  const SignedWords x = (SignedWords)a, y = (SignedWords)b;
  return (Words)(x > y ? x : y);
}
EMBERKV_INLINE Words MinBits(Words a, Words b) {
  const SignedWords x = (SignedWords)a, y = (SignedWords)b;
  return (Words)(x < y ? x : y);
}

// All ones in the lanes that equal `b`.
EMBERKV_INLINE Words Equal(Words a, uint32_t b) { return (Words)(a == FillBits(b)); }

// Lane i of the first half is max(a[2i], a[2i+1]), of the second max(b[2i], b[2i+1]).
EMBERKV_INLINE Words PairMax(Words a, Words b) {
#if defined(__AVX512F__)
  return MaxBits(
      __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
      __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
#elif defined(__AVX2__)
  return MaxBits(__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14),
                 __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15));
#else
  return MaxBits(__builtin_shufflevector(a, b, 0, 2, 4, 6),
                 __builtin_shufflevector(a, b, 1, 3, 5, 7));
#endif
}

// kWidth unsigned bytes.
EMBERKV_INLINE Words LoadBytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  return Words{p[0], p[1], p[2], p[3]};
#endif
}

// Lanes below 256 as kWidth bytes.
EMBERKV_INLINE void StoreBytes(Words v, uint8_t* p) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
#else
  for (int i = 0; i < kWidth; ++i) p[i] = static_cast<uint8_t>(v[i]);
#endif
}

// Lanes below 16 as kWidth / 2 bytes, the even lane in the low nibble.
EMBERKV_INLINE void StoreNibbles(Words v, uint8_t* p) {
#if defined(__AVX512F__)
  const __m512i pairs = _mm512_or_si512((__m512i)v, _mm512_srli_epi64((__m512i)v, 28));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm512_cvtepi64_epi8(pairs));
#elif defined(__AVX2__)
  const __m128i codes =
      _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  const __m128i pairs = _mm_madd_epi16(codes, _mm_set1_epi32(0x00100001));
  const __m128i words = _mm_packus_epi32(pairs, pairs);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(p, &bytes, sizeof bytes);
#else
  p[0] = static_cast<uint8_t>(v[0] | (v[1] << 4));
  p[1] = static_cast<uint8_t>(v[2] | (v[3] << 4));
#endif
}

// kWidth e4m3 codes as floats that are 2^-120 times their values: sign, exponent and mantissa moved
// into place, subnormals included. NaN codes come out as +-480 * 2^-120.
EMBERKV_INLINE Floats LoadScaledE4m3(const uint8_t* p) {
#if defined(__AVX512F__)
  const Words codes =
      (Words)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  const Words codes =
      (Words)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  const auto widened = [](uint8_t byte) { return static_cast<int32_t>(static_cast<int8_t>(byte)); };
  const Words codes =
      (Words)SignedWords{widened(p[0]), widened(p[1]), widened(p[2]), widened(p[3])};
#endif
  // The sign was extended: bit 31 after the shift is the code's bit 7, bits 30..27 are not wanted.
  return ToFloats((codes << 20) & 0x87f00000u);
}

// kWidth packed e2m1 codes (kWidth / 2 bytes) as values.
EMBERKV_INLINE Floats LoadE2m1(const uint8_t* p) {
#if defined(__AVX512F__)
  const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                       -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  const __m512i shifts =
      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m512i spread = _mm512_permutexvar_epi32(halves, _mm512_castsi128_si512(bytes));
  // The table look-up reads the low four bits of a lane only, so the codes need no mask.
  return (Floats)_mm512_permutexvar_ps(_mm512_srlv_epi32(spread, shifts), values);
#elif defined(__AVX2__)
  const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  int32_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(bytes), shifts);
  const Words sign = ((Words)codes << 28) & 0x80000000u;
  return ToFloats(ToBits((Floats)_mm256_permutevar8x32_ps(magnitudes, codes)) | sign);
#else
  constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return Floats{kValues[p[0] & 15], kValues[p[0] >> 4], kValues[p[1] & 15], kValues[p[1] >> 4]};
#endif
}

// Non-zero where any of `n` e4m3 codes, a multiple of 32, is a NaN.
EMBERKV_INLINE Words E4m3Nans(const uint8_t* p, int n) {
  constexpr int kStep = sizeof(Words);
  constexpr int kTail = kStep < 32 ? kStep : 32;
  Words found = {}, codes = {};
  int i = 0;
  // Adding 1 to the low seven bits of a byte carries into its top bit for 0x7f only.
  for (; i + kStep <= n; i += kStep) {
    std::memcpy(&codes, p + i, sizeof codes);
    found |= (codes & 0x7f7f7f7fu) + 0x01010101u;
  }
  if (i < n) {
    codes = Words{};
    std::memcpy(&codes, p + i, kTail);
    found |= (codes & 0x7f7f7f7fu) + 0x01010101u;
  }
  return found & 0x80808080u;
}

EMBERKV_INLINE bool AnyBit(Words v) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)v, (__m512i)v) != 0;
#elif defined(__AVX2__)
  return _mm256_testz_si256((__m256i)v, (__m256i)v) == 0;
#else
  uint64_t halves[2];
  std::memcpy(halves, &v, sizeof halves);
  return (halves[0] | halves[1]) != 0;
#endif
}

}  // namespace EMBERKV_ISA
}  // namespace emberkv
