// bf16: the upper half of an fp32. Round to nearest, ties to even (numerics 3). Pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace emberkv {

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// NaN stays a (quiet) NaN of the same sign.
inline uint16_t FloatToBf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// x rounded to bf16 and kept as fp32: how this engine holds every bf16 activation.
inline float RoundToBf16(float x) { return Bf16ToFloat(FloatToBf16(x)); }

}  // namespace emberkv
