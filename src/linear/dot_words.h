// Weights as the bf16 pairs that VDPBF16PS takes: how the codes of a panel become them, and their
// scales. For the kernels of linear/ on CPUs that have the instruction; internal to them.
#pragma once

#if defined(__AVX512BF16__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/simd.h"
#include "linear/dot_kernels.h"

namespace emberkv::EMBERKV_ISA {
namespace {

// bf16 bits of the magnitudes of e4m3 times a power of two, lower and upper bytes apart, and of
// e2m1.
struct E4m3Bytes {
  uint8_t low[128], high[128];
};
struct Tables {
  alignas(64) E4m3Bytes e4m3[2 * kFoldRange + 1];  // [exponent + kFoldRange]
  alignas(64) uint16_t e2m1[32];
  alignas(64) uint8_t sign[64];  // 0x80
  uint16_t magnitude[32];        // 0x7fff
};

constexpr uint16_t Bf16OfE4m3(int code) {
  int exponent = code >> 3, mantissa = code & 7;
  if (code == 0x7f) return 0x7fc0;
  if (exponent == 0) {  // a multiple of 2^-9
    if (mantissa == 0) return 0;
    for (exponent = 1; mantissa < 8; mantissa *= 2) --exponent;
    mantissa -= 8;
  }
  return static_cast<uint16_t>((exponent + 120) << 7 | mantissa << 4);
}

constexpr Tables MakeTables() {
  Tables t = {};
  for (int code = 0; code < 128; ++code) {
    for (int exponent = -kFoldRange; exponent <= kFoldRange; ++exponent) {
      const int bits = Bf16OfE4m3(code) + (code == 0 ? 0 : exponent * 128);
      t.e4m3[exponent + kFoldRange].low[code] = static_cast<uint8_t>(bits & 255);
      t.e4m3[exponent + kFoldRange].high[code] = static_cast<uint8_t>(bits >> 8 & 255);
    }
  }
  constexpr uint16_t kMagnitudes[8] = {0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0};
  for (int i = 0; i < 32; ++i) {  // twice: only four of the five index bits that count are a code
    t.e2m1[i] = static_cast<uint16_t>(kMagnitudes[i % 8] | (i % 16 / 8) << 15);
    t.sign[2 * i] = t.sign[2 * i + 1] = 0x80;
    t.magnitude[i] = 0x7fff;
  }
  return t;
}

constexpr Tables kTables = MakeTables();

// A scale that may be put into weights (dot_kernels.h).
EMBERKV_INLINE bool CanFold(uint8_t code) {
  return code >= 127 - kFoldRange && code <= 127 + kFoldRange;
}

// How the bytes of 16 rows become registers of bf16 pairs, pairs of ascending k. What decoding
// needs is held in registers; where there are none left, it is made anew from FromMemory(&kTables).
struct Fp8Words {
  static constexpr WeightKind kKind = WeightKind::kFp8;
  static constexpr int kPairs = 2;
  __m512i low[2], high[2];  // lower and upper bytes of the 128 magnitudes
  __m512i sign;

  // The values times 2^exponent, which is within +-kFoldRange.
  explicit Fp8Words(const Tables& tables = kTables, int exponent = 0)
      : sign(_mm512_load_si512(tables.sign)) {
    const E4m3Bytes& bytes = tables.e4m3[exponent + kFoldRange];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      low[i] = _mm512_load_si512(bytes.low + 64 * i);
      high[i] = _mm512_load_si512(bytes.high + 64 * i);
    }
  }
  EMBERKV_INLINE void Decode(const Fp8Words& t, const uint8_t* p, __m512i* pairs) {
    const __m512i codes = Opaque(_mm512_load_si512(p));  // else g++ loads them three times
    const __m512i low = _mm512_permutex2var_epi8(t.low[0], codes, t.low[1]);
    __m512i high = _mm512_permutex2var_epi8(t.high[0], codes, t.high[1]);
    // Made one operation of three inputs, the two would take time from the dots on a Zen 4.
    high = _mm512_or_si512(high, Opaque(_mm512_and_si512(codes, t.sign)));
    pairs[0] = _mm512_unpacklo_epi8(low, high);
    pairs[1] = _mm512_unpackhi_epi8(low, high);
  }
};

struct Fp4Words {
  static constexpr WeightKind kKind = WeightKind::kFp4;
  static constexpr int kPairs = 4;
  __m512i values;
  __m512i magnitude;

  explicit Fp4Words(const Tables& tables = kTables)
      : values(_mm512_load_si512(tables.e2m1)), magnitude(_mm512_load_si512(tables.magnitude)) {}

  EMBERKV_INLINE void Decode(const Fp4Words& t, const uint8_t* p, __m512i* pairs) {
    const __m512i codes = _mm512_load_si512(p);
    const __m512i next =
        _mm512_loadu_si512(p + 1);  // shifts by 8, and the ports that shift are busy
    pairs[0] = _mm512_permutexvar_epi16(codes, t.values);
    pairs[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), t.values);
    pairs[2] = _mm512_permutexvar_epi16(next, t.values);
    pairs[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(next, 4), t.values);
  }

  // bf16 values times 2^exponent, zeros left alone; what is added to the bits is the exponent in
  // its place.
  EMBERKV_INLINE __m512i Scaled(const Fp4Words& t, __m512i pair, __m512i exponent) {
    const __mmask32 nonzero = _mm512_test_epi16_mask(pair, t.magnitude);
    return _mm512_mask_add_epi16(pair, nonzero, pair, exponent);
  }
};

struct Bf16Words {
  static constexpr WeightKind kKind = WeightKind::kBf16;
  static constexpr int kPairs = 1;
  EMBERKV_INLINE void Decode(const Bf16Words&, const uint8_t* p, __m512i* pairs) {
    pairs[0] = _mm512_load_si512(p);
  }
};

EMBERKV_INLINE __m512i ScaleCodes(const PanelView& panel, int b, int half) {
  return _mm512_cvtepu8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel.scales + kPanelRows * b + 16 * half)));
}

// The scales of block b for rows 16 * half and on.
template <WeightKind kKind>
EMBERKV_INLINE __m512 Scale(const PanelView& panel, int b, int half) {
  if constexpr (kKind == WeightKind::kBf16) return _mm512_set1_ps(1.0f);
  const __m512i codes =
      kKind == WeightKind::kFp8 ? _mm512_set1_epi32(panel.scales[b]) : ScaleCodes(panel, b, half);
  // Code 0 is the subnormal 2^-127.
  return _mm512_castsi512_ps(
      _mm512_max_epu32(_mm512_slli_epi32(codes, 23), _mm512_set1_epi32(0x00400000)));
}

EMBERKV_INLINE __m512 AddPair(__m512 acc, __m512i input, __m512i weights) {
  return _mm512_dpbf16_ps(acc, (__m512bh)input, (__m512bh)weights);
}

}  // namespace
}  // namespace emberkv::EMBERKV_ISA

#endif
