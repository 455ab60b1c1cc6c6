#include "attention/selection_kernels.h"

#include "base/simd.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr int kStride = 64;  // scores looked at together

EMBERKV_INLINE uint64_t Key(float score, int32_t position) {
  score += 0.0f;  // -0 equals +0
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  bits ^= (bits >> 31) != 0 ? 0xffffffffu : 0x80000000u;
  return uint64_t{bits} << 32 | static_cast<uint32_t>(~position);
}

#if defined(__AVX512F__)

EMBERKV_INLINE bool AnyAbove(const float* p, float low) {
  const __m512 t = _mm512_set1_ps(low);
  return (_mm512_cmp_ps_mask(_mm512_loadu_ps(p), t, _CMP_GT_OQ) |
          _mm512_cmp_ps_mask(_mm512_loadu_ps(p + 16), t, _CMP_GT_OQ) |
          _mm512_cmp_ps_mask(_mm512_loadu_ps(p + 32), t, _CMP_GT_OQ) |
          _mm512_cmp_ps_mask(_mm512_loadu_ps(p + 48), t, _CMP_GT_OQ)) != 0;
}

EMBERKV_INLINE int CollectVector(const float* p, float low, float high, int32_t position,
                                 uint64_t* keys) {
  const __m512 v = _mm512_loadu_ps(p);
  unsigned mask = _mm512_cmp_ps_mask(v, _mm512_set1_ps(low), _CMP_GT_OQ) &
                  _mm512_cmp_ps_mask(v, _mm512_set1_ps(high), _CMP_NGE_UQ);
  int count = 0;
  for (; mask != 0; mask &= mask - 1) {
    const int i = __builtin_ctz(mask);
    keys[count++] = Key(p[i], position + i);
  }
  return count;
}

#else

EMBERKV_INLINE bool AnyAbove(const float* p, float low) {
  I32x16 any = {};
  for (int j = 0; j < kStride; j += kLanes) any |= Load(p + j) > Splat(low);
  int32_t lanes[kLanes], all = 0;
  std::memcpy(lanes, &any, sizeof lanes);
  for (const int32_t lane : lanes) all |= lane;
  return all != 0;
}

EMBERKV_INLINE int CollectVector(const float* p, float low, float high, int32_t position,
                                 uint64_t* keys) {
  int count = 0;
  for (int i = 0; i < kLanes; ++i) {
    if (p[i] > low && !(p[i] >= high)) keys[count++] = Key(p[i], position + i);
  }
  return count;
}

#endif

int64_t Collect(const float* scores, int64_t begin, int64_t n, float low, float high, int32_t first,
                uint64_t* keys, int capacity, int* count) {
  int64_t i = begin;
  int k = *count;
  for (; i + kStride <= n && capacity - k >= kStride; i += kStride) {
    if (!AnyAbove(scores + i, low)) continue;
    for (int j = 0; j < kStride; j += kLanes) {
      k += CollectVector(scores + i + j, low, high, first + static_cast<int32_t>(i) + j, keys + k);
    }
  }
  if (i + kStride > n) {
    for (; i < n && k < capacity; ++i) {
      if (scores[i] > low && !(scores[i] >= high))
        keys[k++] = Key(scores[i], first + static_cast<int32_t>(i));
    }
  }
  *count = k;
  return i;
}

// max(a[2 i], a[2 i + 1]) for the 16 pairs of two vectors.
EMBERKV_INLINE F32x16 MaxOfPairs(F32x16 a, F32x16 b) {
  return Max(
      __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
      __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
}

void MaxOf8(const float* scores, int64_t blocks, float* out) {
  int64_t b = 0;
  for (; b + kLanes <= blocks; b += kLanes) {
    const float* p = scores + 8 * b;
    F32x16 pairs[4];
    for (int i = 0; i < 4; ++i) pairs[i] = MaxOfPairs(Load(p + 32 * i), Load(p + 32 * i + 16));
    Store(MaxOfPairs(MaxOfPairs(pairs[0], pairs[1]), MaxOfPairs(pairs[2], pairs[3])), out + b);
  }
  for (; b < blocks; ++b) {
    float v[8];
    std::memcpy(v, scores + 8 * b, sizeof v);
    for (int width = 4; width >= 1; width /= 2) {
      for (int i = 0; i < width; ++i) v[i] = v[2 * i] > v[2 * i + 1] ? v[2 * i] : v[2 * i + 1];
    }
    out[b] = v[0];
  }
}

}  // namespace

const SelectionKernels kSelectionKernels = {Collect, MaxOf8};

}  // namespace emberkv::EMBERKV_ISA
