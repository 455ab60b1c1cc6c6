// bf16 in and out of the row kernels' vectors, and the e2m1 rows of 16-channel groups on AVX-512, where bf16
// values need no detour through floats. For row_kernels_strict.cc only (see row_lanes.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "formats/row_lanes.h"

namespace emberkv {
namespace EMBERKV_ISA {

// kWidth bf16 values.
EMBERKV_INLINE Floats LoadFloats(const uint16_t* p) {
#if defined(__AVX512F__)
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return ToFloats((Words)_mm512_cvtepu16_epi32(words) << 16);
#elif defined(__AVX2__)
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return ToFloats((Words)_mm256_cvtepu16_epi32(words) << 16);
#else
  return ToFloats(Words{p[0], p[1], p[2], p[3]} << 16);
#endif
}

#if defined(__AVX512F__)
// The upper halves of the lanes of a, then of b.
EMBERKV_INLINE __m512i JoinBf16(Floats a, Floats b) {
  const __m512i upper_halves =
      _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21,
                       19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_epi16((__m512i)a, upper_halves, (__m512i)b);
}
#endif

// 2 * kWidth values that are exact in bf16 as pairs of neighbours, the first in the upper half.
EMBERKV_INLINE void StoreBf16Pairs(Floats a, Floats b, uint32_t* pairs) {
#if defined(__AVX512F__)
  _mm512_storeu_si512(pairs, _mm512_rol_epi32(JoinBf16(a, b), 16));
#elif defined(__AVX2__)
  const __m256i words = _mm256_packus_epi32((__m256i)(ToBits(a) >> 16), (__m256i)(ToBits(b) >> 16));
  const Words joined = (Words)_mm256_permute4x64_epi64(words, 0xd8);
  StoreFloats(ToFloats((joined << 16) | (joined >> 16)), reinterpret_cast<float*>(pairs));
#else
  const Words low = ToBits(a), high = ToBits(b);
  for (int i = 0; i < kWidth; i += 2) {
    pairs[i / 2] = low[i] | low[i + 1] >> 16;
    pairs[(kWidth + i) / 2] = high[i] | high[i + 1] >> 16;
  }
#endif
}

// Any floats, rounded to nearest even; NaN stays NaN.
EMBERKV_INLINE Floats RoundToBf16Lanes(Floats v) {
  const Words bits = ToBits(v);
  const Words rounded = bits + (0x7fffu + ((bits >> 16) & 1u));
  const Words is_nan = (Words)(v != v);
  return ToFloats(((rounded & ~is_nan) | ((bits | 0x00400000u) & is_nan)) & 0xffff0000u);
}

#if defined(__AVX512F__)

// Two neighbouring groups of 16 channels are one vector of words, and a table for both has 32 entries: those
// of the first group below those of the second. Words of the second group index it with this offset.
EMBERKV_INLINE __m512i SecondGroupOffset() {
  return _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
}

// The bf16 products, which are exact, of 16 factors with the scales of two groups.
EMBERKV_INLINE __m512i TableOfPair(__m512 factors, float first_scale, float second_scale) {
  return JoinBf16((Floats)factors * Fill(first_scale), (Floats)factors * Fill(second_scale));
}

// The bf16 products of each e4m3 scale code with the 16 e2m1 codes.
struct E2m1Products {
  alignas(64) uint16_t of_scale[256][16];
};

constexpr E2m1Products MakeE2m1Products() {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  E2m1Products t = {};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float scale = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) * 0x1p-9f;
    for (int i = 1; i < exponent; ++i) scale *= 2.0f;
    for (int i = 0; i < 16; ++i) {
      const uint32_t sign = static_cast<uint32_t>(code >> 7 ^ i >> 3) << 31;
      const uint32_t nan = 0x7ff00000u | static_cast<uint32_t>(code >> 7) << 31;
      const uint32_t bits = __builtin_bit_cast(uint32_t, scale * kMagnitudes[i % 8]) | sign;
      t.of_scale[code][i] = static_cast<uint16_t>(((code & 0x7f) == 0x7f ? nan : bits) >> 16);
    }
  }
  return t;
}

inline constexpr E2m1Products kE2m1Products = MakeE2m1Products();

// 32 packed e2m1 codes of two groups as pairs of bf16 values, the first in the upper half. Given are the e4m3
// codes of the groups' scales.
EMBERKV_INLINE void DecodeE2m1Pair(const uint8_t* codes, const uint8_t* scale_codes, uint32_t* pairs) {
  const auto products = [&](int group) {
    return _mm256_load_si256(
        reinterpret_cast<const __m256i*>(kE2m1Products.of_scale[scale_codes[group]]));
  };
  const __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(products(0)), products(1), 1);
  const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  // Both words of a lane get its byte; then the upper word has its low nibble lowest, the lower the high one.
  const __m512i spread = _mm512_set_epi64(
      0x0f0f0f0f0e0e0e0e, 0x0d0d0d0d0c0c0c0c, 0x0b0b0b0b0a0a0a0a, 0x0909090908080808, 0x0707070706060606,
      0x0505050504040404, 0x0303030302020202, 0x0101010100000000);
  const __m512i nibbles =
      _mm512_srlv_epi16(_mm512_shuffle_epi8(bytes, spread), _mm512_set1_epi32(0x00000004));
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i index =
      _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi16(15), SecondGroupOffset(), kAndOr);
  _mm512_storeu_si512(pairs, _mm512_permutexvar_epi16(index, table));
}

// Packs 32 bf16 values of two groups as e2m1. x / scale lies above a midpoint of two codes exactly if x lies
// above the midpoint times the scale, which is exact in bf16; so the code is searched for instead of divided
// for.
EMBERKV_INLINE void EncodeE2m1Pair(const uint16_t* x, float first_scale, float second_scale, uint8_t* codes) {
  constexpr float kUnused = 8.0f;
  const __m512 midpoints = _mm512_setr_ps(0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, kUnused, kUnused,
                                          kUnused, kUnused, kUnused, kUnused, kUnused, kUnused, kUnused);
  // A tie above an odd code goes up: one place less makes `greater` of it.
  const __m512i passed =
      _mm512_sub_epi16(TableOfPair(midpoints, first_scale, second_scale), _mm512_set1_epi32(0x00010000));
  const __m512i words = _mm512_loadu_si512(x);
  const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
  const __m512i offset = SecondGroupOffset();
  const auto is_past = [&](__m512i index) {
    return _mm512_cmpgt_epi16_mask(magnitude, _mm512_permutexvar_epi16(index, passed));
  };
  const __m512i one = _mm512_set1_epi16(1);
  __m512i code = _mm512_mask_mov_epi16(offset, is_past(_mm512_or_si512(offset, _mm512_set1_epi16(3))),
                                       _mm512_or_si512(offset, _mm512_set1_epi16(4)));
  code = _mm512_mask_add_epi16(code, is_past(_mm512_or_si512(code, one)), code, _mm512_set1_epi16(2));
  code = _mm512_mask_add_epi16(code, is_past(code), code, one);
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi16(words, 12), _mm512_set1_epi16(8));
  code = _mm512_ternarylogic_epi32(code, _mm512_set1_epi16(7), sign, kAndOr);
  const __m512i pairs = _mm512_madd_epi16(code, _mm512_set1_epi32(0x00100001));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(pairs));
}

EMBERKV_INLINE __m512i MaxWords(__m512i a, __m512i b) { return _mm512_max_epi16(a, b); }

// Largest magnitudes of 32 groups of 16 bf16 values, as the bits of floats: groups 0 to 15 and 16 to 31.
// A tree that halves the values of each group and doubles the groups in a vector at every step.
EMBERKV_INLINE void RunMaxima(const uint16_t* x, Words* first, Words* second) {
  __m512i v[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    v[i] = _mm512_and_si512(_mm512_loadu_si512(x + 32 * i), _mm512_set1_epi16(0x7fff));
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    v[i] = MaxWords(_mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]),
                    _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = MaxWords(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                    _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    v[i] = MaxWords(_mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]),
                    _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]));
  }
  // Of 128 bits, quarters 0 and 1 of v[0] now belong to even groups, 2 and 3 to odd ones; likewise v[1].
  const __m512i mixed =
      MaxWords(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
  const __m512i order = _mm512_set_epi16(31, 23, 30, 22, 29, 21, 28, 20, 27, 19, 26, 18, 25, 17, 24, 16, 15,
                                         7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
  const __m512i maxima = _mm512_permutexvar_epi16(order, mixed);
  *first = (Words)_mm512_cvtepu16_epi32(_mm512_castsi512_si256(maxima)) << 16;
  *second = (Words)_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(maxima, 1)) << 16;
}

#endif

}  // namespace EMBERKV_ISA
}  // namespace emberkv
