#include "linear/panel_kernels.h"

#include "linear/panel_product.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// 16 e8m0 codes as fp32; code 0 is the subnormal 2^-127.
EMBERKV_INLINE F32x16 ScaleValues(U32x16 codes) {
  const U32x16 zero_mask = (U32x16)(codes == 0u);
  return AsFloat((codes << 23) | (zero_mask & 0x00400000u));
}

EMBERKV_INLINE F32x16 E4m3Values(U32x16 codes) {
  const F32x16 magnitude = AsFloat((codes & 0x7fu) << 20) * Splat(0x1p120f);
  return AsFloat(AsBits(magnitude) | ((codes & 0x80u) << 24));
}

EMBERKV_INLINE F32x16 E2m1Values(U32x16 codes) {
#if defined(__AVX512F__)
  return (F32x16)_mm512_permutexvar_ps((__m512i)codes, _mm512_loadu_ps(kE2m1));
#else
  float out[kLanes];
  uint32_t index[kLanes];
  std::memcpy(index, &codes, sizeof index);
  for (int i = 0; i < kLanes; ++i) out[i] = kE2m1[index[i] & 15u];
  return Load(out);
#endif
}

void DecodeFp8(const uint8_t* data, const uint8_t* scales, int k0, int depth, float* out) {
  for (int g = 0; g < depth; g += 32) {
    const F32x16 scale = ScaleValues(SplatU(scales[(k0 + g) / 32]));
    for (int k = g; k < g + 32; ++k) {
      const uint8_t* codes = data + static_cast<size_t>(k0 + k) * 32;
      Store(E4m3Values(LoadU8(codes)) * scale, out + 32 * k);
      Store(E4m3Values(LoadU8(codes + 16)) * scale, out + 32 * k + 16);
    }
  }
}

void DecodeFp4(const uint8_t* data, const uint8_t* scales, int k0, int depth, float* out) {
  for (int g = 0; g < depth; g += 32) {
    const uint8_t* scale_codes = scales + static_cast<size_t>(k0 + g);  // (k/32) * 32 lanes
    for (int half = 0; half < 32; half += 16) {
      const F32x16 scale = ScaleValues(LoadU8(scale_codes + half));
      for (int k = g; k < g + 32; k += 2) {
        const U32x16 pair = LoadU8(data + static_cast<size_t>(k0 + k) / 2 * 32 + half);
        Store(E2m1Values(pair & 15u) * scale, out + 32 * k + half);
        Store(E2m1Values(pair >> 4) * scale, out + 32 * (k + 1) + half);
      }
    }
  }
}

void DecodeBf16(const uint8_t* data, int k0, int depth, float* out) {
  const uint8_t* values = data + static_cast<size_t>(k0) * 64;
  for (int i = 0; i < depth * 32; i += 16) {
    uint16_t bits[kLanes];
    std::memcpy(bits, values + 2 * i, sizeof bits);
    Store(LoadBf16(bits), out + i);
  }
}

void Accumulate(const float* w, int depth, const float* x, size_t x_stride, int num_rows,
                float* sums) {
  AccumulateTile(w, depth, x, x_stride, num_rows, sums);
}

void RoundValues(float* values, int n) {
  for (int i = 0; i < n; i += kLanes) Store(RoundBf16(Load(values + i)), values + i);
}

}  // namespace

const PanelKernels kPanelKernels = {DecodeFp8, DecodeFp4, DecodeBf16, Accumulate, RoundValues};

}  // namespace emberkv::EMBERKV_ISA
