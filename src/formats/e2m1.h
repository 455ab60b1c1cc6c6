// e2m1 (FP4): codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign, so -0 exists (code 8).
// Two codes share a byte, the even channel in the low nibble. Numerics 2 and 3.3. Pure functions.
#pragma once

#include <cmath>
#include <cstdint>

namespace emberkv {

inline constexpr float kE2m1Max = 6.0f;
inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

inline float E2m1ToFloat(uint8_t code) { return kE2m1Values[code & 15]; }

// Nearest code, ties to the even code, saturating at 6; the sign of -0 is kept. Not for NaN.
inline uint8_t FloatToE2m1(float x) {
  const float a = std::fabs(x);
  // The midpoints between neighbours that `a` is past; a tie stays at, or moves to, the even code.
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                   (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

}  // namespace emberkv
