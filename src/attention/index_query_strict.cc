// Queries as codes, for the dot path: decided once for a query, what keys it may meet.
#include "attention/index_dots.h"

#if defined(EMBERKV_INDEX_DOTS)

#include <immintrin.h>

#include <cstring>

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr int kMostExponent =
    100;  // of query values and weights, either way; beyond, the plain path

// The exponent of a group's greatest value, less 2: its values are then at most 12 halves of
// 2^exponent. 0 for a group of zeros; kUnusable where the values are far from 1.
int GroupExponent(const float* q) {
  const __m512 a = _mm512_loadu_ps(q), b = _mm512_loadu_ps(q + 16);
  const float greatest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
  if (greatest == 0.0f) return 0;
  uint32_t bits;
  std::memcpy(&bits, &greatest, sizeof bits);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  return exponent < -kMostExponent || exponent > kMostExponent ? kUnusable : exponent - 2;
}

float PowerOfTwo(int exponent) {
  const uint32_t bits = static_cast<uint32_t>(exponent + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

// Codes of one group of a head, shifted; false if a value is no code. Adds them up.
bool EncodeGroup(const float* q, int exponent, int shift, int8_t* codes, int32_t* sum) {
  const __m512 scale = _mm512_set1_ps(PowerOfTwo(1 - exponent));
  const __m512i most = _mm512_set1_epi32(12);
  alignas(16) int8_t in_order[kScaleGroup];
  for (int half = 0; half < 2; ++half) {
    const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(q + 16 * half), scale);
    __m512i v = _mm512_cvtps_epi32(x);
    if (_mm512_cmp_ps_mask(_mm512_cvtepi32_ps(v), x, _CMP_EQ_OQ) != 0xffff ||
        _mm512_cmpgt_epi32_mask(_mm512_abs_epi32(v), most) != 0) {
      return false;
    }
    v = _mm512_sllv_epi32(v, _mm512_set1_epi32(shift));
    *sum += _mm512_reduce_add_epi32(v);
    // Of 8 channels first the even, then the odd, as the nibbles of a key lie.
    const __m128i split = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    _mm_store_si128(reinterpret_cast<__m128i*>(in_order + 16 * half),
                    _mm_shuffle_epi8(_mm512_cvtepi32_epi8(v), split));
  }
  for (int s = 0; s < kSteps; ++s) std::memcpy(codes + 4 * kDotHeads * s, in_order + 4 * s, 4);
  return true;
}

// The exponents of one head's groups.
struct HeadExponents {
  int group[kDotMaxGroups] = {};
  int least = 0, most = 0;
  bool usable = true;
};

HeadExponents FindExponents(const float* q, int groups) {
  HeadExponents e;
  bool zero[kDotMaxGroups];
  bool any = false;
  for (int g = 0; g < groups; ++g) {
    const float* x = q + kScaleGroup * g;
    e.group[g] = GroupExponent(x);
    if (e.group[g] == kUnusable) e.usable = false;
    const __m512 none = _mm512_setzero_ps();
    zero[g] = _mm512_cmp_ps_mask(_mm512_loadu_ps(x), none, _CMP_NEQ_UQ) == 0 &&
              _mm512_cmp_ps_mask(_mm512_loadu_ps(x + 16), none, _CMP_NEQ_UQ) == 0;
    if (zero[g]) continue;
    e.least = any && e.least < e.group[g] ? e.least : e.group[g];
    e.most = any && e.most > e.group[g] ? e.most : e.group[g];
    any = true;
  }
  for (int g = 0; g < groups; ++g) {
    if (zero[g]) e.group[g] = e.least;
  }
  return e;
}

// Narrows [query->low, query->high] so that every number that a head makes with a key, whatever its
// codes, is 0 or normal. Before weighting all are multiples of 2^(least + key exponent - 2), and
// the dot is below 2^(most + key exponent + 13): 4 groups of 32 products of at most 36.
void LimitKeys(const HeadExponents& e, float weight, int log_heads, DotQuery* query) {
  const auto at_least = [&](int low) { query->low = low > query->low ? low : query->low; };
  const auto at_most = [&](int high) { query->high = high < query->high ? high : query->high; };
  constexpr int kLeast = -126, kMost = 126;
  at_most(kMost - (e.most + 13));
  at_least(kLeast - (e.least - 2));
  if (weight == 0.0f) return;
  uint32_t bits;
  std::memcpy(&bits, &weight, sizeof bits);
  const int w = static_cast<int>(bits >> 23 & 255) - 127;
  if (w < -kMostExponent || w > kMostExponent) query->exact = false;
  // Rounded to 8 bits, a weighted dot is a multiple of 2^(its least - 7), and so is a sum of them.
  const int low = e.least - 2 + w - 7;
  const int high = e.most + 13 + w + 1 + log_heads + 1;
  at_least(kLeast - low);
  at_most(kMost - high);
  // The same without the key's exponent, for the path with folded weights.
  if (low < kLeast || high + 2 * kNarrowSpread > kMost) query->exact = false;
}

}  // namespace

void PrepareDotQuery(const float* q, const float* w, int heads, int dim, DotQuery* query) {
  query->groups = dim / kScaleGroup;
  query->batches = (heads + kDotHeads - 1) / kDotHeads;
  query->exact = query->groups <= kDotMaxGroups;
  query->narrow = true;
  query->low = -126;
  query->high = 125;  // 6 * 2^126 is infinite where the plain path decodes it
  if (!query->exact) return;
  const size_t channels = static_cast<size_t>(dim);
  int log_heads = 0;
  while ((1 << log_heads) < heads) ++log_heads;
  for (int h = 0; h < query->batches * kDotHeads; ++h) {
    const int batch = h / kDotHeads, lane = h % kDotHeads;
    int8_t* codes = query->codes + static_cast<size_t>(batch) * channels * kDotHeads + 4 * lane;
    int32_t* group_bias = query->group_bias + batch * kDotMaxGroups * kDotHeads + lane;
    query->bias[h] = 0;
    query->weights[h] = query->folded[h] = 0.0f;
    if (h >= heads) {
      for (int g = 0; g < query->groups; ++g) {
        for (int s = 0; s < kSteps; ++s) std::memset(codes + kGroupCodes * g + 4 * kDotHeads * s, 0, 4);
        group_bias[kDotHeads * g] = 0;
        query->group_units[kDotMaxGroups * h + g] = 1.0f;
      }
      continue;
    }
    const float* head = q + static_cast<size_t>(h) * dim;
    const HeadExponents e = FindExponents(head, query->groups);
    query->exact = query->exact && e.usable;
    if (!query->exact) return;
    const bool narrow = e.most - e.least <= kNarrowSpread;
    query->narrow = query->narrow && narrow;
    for (int g = 0; g < query->groups; ++g) {
      const int unit = narrow ? e.least : e.group[g];
      int32_t sum = 0;
      if (!EncodeGroup(head + kScaleGroup * g, e.group[g], e.group[g] - unit,
                       codes + kGroupCodes * g, &sum)) {
        query->exact = false;
        return;
      }
      group_bias[kDotHeads * g] = -128 * sum;
      query->bias[h] -= 128 * sum;
      query->group_units[kDotMaxGroups * h + g] = PowerOfTwo(unit - 2);
    }
    LimitKeys(e, w[h], log_heads, query);
    if (!query->exact) return;
    query->weights[h] = w[h];
    query->folded[h] = w[h] * PowerOfTwo(e.least - 2);
  }
}

}  // namespace emberkv::EMBERKV_ISA

#endif
