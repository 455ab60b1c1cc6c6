// e4m3fn (FP8): s eeee mmm, bias 7, subnormal step 2^-9, largest 448, no infinity, NaN 0x7f and
// 0xff. Numerics 2. Pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace emberkv {

inline constexpr float kE4m3Max = 448.0f;

inline float E4m3ToFloat(uint8_t code) {
  if ((code & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fc00000u);
  // Exponent and mantissa moved into fp32 place are the value times 2^-120, subnormals included.
  const float magnitude = std::bit_cast<float>(static_cast<uint32_t>(code & 0x7f) << 20) * 0x1p120f;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// Nearest code, ties to even, saturating at 448; the sign of -0 is kept. Not for NaN.
inline uint8_t FloatToE4m3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float a = std::fabs(x) < kE4m3Max ? std::fabs(x) : kE4m3Max;
  if (a < 0x1p-6f) {  // subnormal: a multiple of 2^-9 (8 becomes the smallest normal by itself)
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(a * 512.0f)));
  }
  const uint32_t u = std::bit_cast<uint32_t>(a);
  const uint32_t rounded = (u + 0x7ffffu + ((u >> 20) & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - (120u << 3)));
}

}  // namespace emberkv
