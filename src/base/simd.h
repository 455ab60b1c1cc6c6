// Vectors of 16 lanes for kernel sources (the files listed under KERNELS in a room's CMakeLists.txt).
//
// One source serves every instruction set: the compiler's vector extension lowers these types to
// whatever the target has, with the same bits everywhere. The few conversions it lowers badly are
// written with intrinsics below. Everything is forced inline: a kernel object must not emit functions
// that the linker could pick for code that runs on a smaller CPU.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define EMBERKV_INLINE static inline __attribute__((always_inline))

namespace emberkv {

// Keeps the compiler from holding what `p` points to in registers across a loop, where it would push
// more useful values out.
template <class T>
EMBERKV_INLINE const T* FromMemory(const T* p) {
  asm volatile("" : "+r"(p));
  return p;
}
#if defined(__AVX512F__)
// The value, but the compiler no longer knows what it is made of.
template <class Vector>
EMBERKV_INLINE Vector Opaque(Vector value) {
  asm("" : "+v"(value));
  return value;
}
// Pins the computation of `*value` between the instructions written before and after.
template <class Vector>
EMBERKV_INLINE void KeepHere(Vector* value) {
  asm volatile("" : "+v"(*value));
}
#endif

inline constexpr int kLanes = 16;

typedef float F32x16 __attribute__((vector_size(64)));
typedef uint32_t U32x16 __attribute__((vector_size(64)));
typedef int32_t I32x16 __attribute__((vector_size(64)));

EMBERKV_INLINE F32x16 Splat(float x) { return x - F32x16{}; }
EMBERKV_INLINE U32x16 SplatU(uint32_t x) { return x - U32x16{}; }

EMBERKV_INLINE F32x16 Load(const float* p) {
  F32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
EMBERKV_INLINE void Store(F32x16 v, float* p) { std::memcpy(p, &v, sizeof v); }

EMBERKV_INLINE F32x16 AsFloat(U32x16 v) { return (F32x16)v; }
EMBERKV_INLINE U32x16 AsBits(F32x16 v) { return (U32x16)v; }

// 16 unsigned bytes, widened.
EMBERKV_INLINE U32x16 LoadU8(const uint8_t* p) {
#if defined(__AVX512F__)
  return (U32x16)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  const __m256i lo = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i hi = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)));
  U32x16 v;
  std::memcpy(&v, &lo, 32);
  std::memcpy(reinterpret_cast<char*>(&v) + 32, &hi, 32);
  return v;
#else
  uint32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = p[i];
  U32x16 v;
  std::memcpy(&v, lanes, sizeof v);
  return v;
#endif
}

// 16 bf16 values, widened to fp32.
EMBERKV_INLINE F32x16 LoadBf16(const uint16_t* p) {
#if defined(__AVX512F__)
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (F32x16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
#else
  uint32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<uint32_t>(p[i]) << 16;
  U32x16 v;
  std::memcpy(&v, lanes, sizeof v);
  return AsFloat(v);
#endif
}

// Lane-wise c ? a : b for a comparison result (all ones or all zeros per lane).
EMBERKV_INLINE F32x16 Select(I32x16 c, F32x16 a, F32x16 b) {
  return (F32x16)(((I32x16)a & c) | ((I32x16)b & ~c));
}

// a > b ? a : b and a < b ? a : b per lane, which is what the machine's instructions do, NaN and the signs
// of zero included; compilers do not find them for vectors wider than a register.
#if defined(__AVX512F__)
EMBERKV_INLINE F32x16 Max(F32x16 a, F32x16 b) { return (F32x16)_mm512_max_ps((__m512)a, (__m512)b); }
EMBERKV_INLINE F32x16 Min(F32x16 a, F32x16 b) { return (F32x16)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
typedef float F32x8 __attribute__((vector_size(32)));
EMBERKV_INLINE F32x8 LowHalf(F32x16 v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
EMBERKV_INLINE F32x8 HighHalf(F32x16 v) {
  return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}
EMBERKV_INLINE F32x16 Join(F32x8 low, F32x8 high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
EMBERKV_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return Join((F32x8)_mm256_max_ps((__m256)LowHalf(a), (__m256)LowHalf(b)),
              (F32x8)_mm256_max_ps((__m256)HighHalf(a), (__m256)HighHalf(b)));
}
EMBERKV_INLINE F32x16 Min(F32x16 a, F32x16 b) {
  return Join((F32x8)_mm256_min_ps((__m256)LowHalf(a), (__m256)LowHalf(b)),
              (F32x8)_mm256_min_ps((__m256)HighHalf(a), (__m256)HighHalf(b)));
}
#else
EMBERKV_INLINE F32x16 Max(F32x16 a, F32x16 b) { return Select(a > b, a, b); }
EMBERKV_INLINE F32x16 Min(F32x16 a, F32x16 b) { return Select(a < b, a, b); }
#endif
EMBERKV_INLINE F32x16 Abs(F32x16 a) { return (F32x16)((U32x16)a & 0x7fffffffu); }

// Round to nearest even bf16, kept as fp32, for values known not to be NaN.
EMBERKV_INLINE F32x16 RoundBf16Finite(F32x16 v) {
  const U32x16 u = AsBits(v);
  return AsFloat((u + (0x7fffu + ((u >> 16) & 1u))) & 0xffff0000u);
}

// The same for any value: NaN stays NaN (rounding its bits could make a zero of it).
EMBERKV_INLINE F32x16 RoundBf16(F32x16 v) { return Select(v == v, RoundBf16Finite(v), v); }

// Sum of the lanes in one fixed tree: (i, i+8), then (i, i+4), (i, i+2), (i, i+1).
EMBERKV_INLINE float ReduceSum(F32x16 v) {
  float a[kLanes];
  Store(v, a);
  for (int w = 8; w >= 1; w /= 2) {
    for (int i = 0; i < w; ++i) a[i] += a[i + w];
  }
  return a[0];
}
EMBERKV_INLINE float ReduceMax(F32x16 v) {
  float a[kLanes];
  Store(v, a);
  for (int w = 8; w >= 1; w /= 2) {
    for (int i = 0; i < w; ++i) a[i] = a[i] > a[i + w] ? a[i] : a[i + w];
  }
  return a[0];
}

// Transposes a 16 x 16 block: out[c][r] = in[r][c], strides in floats.
EMBERKV_INLINE void Transpose16(const float* in, size_t in_stride, float* out, size_t out_stride) {
  F32x16 a[kLanes];
  F32x16 b[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) a[i] = Load(in + i * in_stride);
  // Four rounds of pairwise interleaving; after them row i of `a` is column i of the input.
  for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                         22, 7, 23);
      b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                             13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) a[i] = b[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) Store(a[i], out + i * out_stride);
}

// e^x for x in [-87.33, 88.37], whose result is a normal number; anything else gives anything. Only for *_strict
// sources: fused, it would give other bits.
EMBERKV_INLINE F32x16 ExpInRange(F32x16 x) {
  // n = round(x / ln 2) by the magic-number trick; r = x - n ln 2 in two parts.
  const F32x16 magic = Splat(12582912.0f);
  const F32x16 shifted = x * Splat(1.44269504088896341f) + magic;
  const F32x16 n = shifted - magic;
  // n * kLn2Hi is exact: kLn2Hi has 9 significant bits and |n| < 2^8.
  F32x16 r = x - n * Splat(0.693359375f);
  r = r - n * Splat(-2.12194440e-4f);
  F32x16 p = Splat(1.9875691500e-4f);
  p = p * r + Splat(1.3981999507e-3f);
  p = p * r + Splat(8.3334519073e-3f);
  p = p * r + Splat(4.1665795894e-2f);
  p = p * r + Splat(1.6666665459e-1f);
  p = p * r + Splat(5.0000001201e-1f);
  p = p * (r * r) + r + Splat(1.0f);
  return AsFloat(AsBits(p) + (AsBits(shifted) << 23));
}

// e^x from plain multiplications and additions: |error| <= 2 ulp on [-87, 88], 0 below -87.33. Only for
// *_strict sources: fused, it would give other bits.
EMBERKV_INLINE F32x16 Exp(F32x16 x) {
  const F32x16 lo = Splat(-87.33f), hi = Splat(88.37f);
  return Select(x < lo, Splat(0.0f), ExpInRange(Min(Max(x, lo), hi)));
}

}  // namespace emberkv
