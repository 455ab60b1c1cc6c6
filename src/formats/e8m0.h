// e8m0: a power of two, 2^(code - 127). Code 0 is the fp32 subnormal 2^-127; code 255 is NaN.
// Numerics 2 and 3.2. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace emberkv {

inline float E8m0ToFloat(uint8_t code) {
  if (code == 0) return 0x1p-127f;
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

// The smallest power of two >= t, as a code. t must be positive, normal and at most 2^127.
inline uint8_t CeilToE8m0(float t) {
  const uint32_t u = std::bit_cast<uint32_t>(t);
  return static_cast<uint8_t>((u >> 23) + ((u & 0x7fffffu) != 0 ? 1u : 0u));
}

}  // namespace emberkv
