#include "attention/sparse_attention_kernels.h"
#include "attention/sparse_attention_lanes.h"

namespace emberkv {
namespace EMBERKV_ISA {
namespace {

// What the registers hold: rows of k times vectors of heads, and heads times two vectors of channels.
#if defined(__AVX512F__)
constexpr int kRowsAtOnce = 6, kHeadVectors = 4, kHeadsAtOnce = 8;
#elif defined(__AVX2__)
constexpr int kRowsAtOnce = 4, kHeadVectors = 2, kHeadsAtOnce = 4;
#else
constexpr int kRowsAtOnce = 2, kHeadVectors = 2, kHeadsAtOnce = 2;
#endif

// 16 pairs of neighbouring channels of a query.
EMBERKV_INLINE F32x16 PackPairs(const float* q) {
  const auto bits = [](F32x16 v) { return AsBits(Select(Abs(v) < Splat(kLeastOperand), F32x16{}, v)); };
  const F32x16 a = Load(q), b = Load(q + kLanes);
  const F32x16 first =
      __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const F32x16 second =
      __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return AsFloat(bits(first) | (bits(second) >> 16));
}

void PackQueries(const float* q, int heads, int dim, uint32_t* packed) {
  const int lanes = AttentionLanes(heads);
  float block[kLanes * kLanes];
  for (int first = 0; first < lanes; first += kLanes) {
    for (int pair = 0; pair < dim / 2; pair += kLanes) {
      for (int i = 0; i < kLanes; ++i) {
        const bool is_padding = first + i >= heads;
        const float* x = q + static_cast<size_t>(is_padding ? 0 : first + i) * dim + 2 * pair;
        Store(is_padding ? F32x16{} : PackPairs(x), block + i * kLanes);
      }
      Transpose16(block, kLanes, reinterpret_cast<float*>(packed + static_cast<size_t>(pair) * lanes + first),
                  static_cast<size_t>(lanes));
    }
  }
}

// Dots of R rows with J vectors of heads.
template <int R, int J>
EMBERKV_INLINE void ScoreBlock(const uint32_t* q, const uint32_t* k, int lanes, int dim, float* s) {
  Sums acc[R][J];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) acc[r][j] = Sums{};
  }
  for (int c = 0; c < dim / 2; ++c) {
    Pairs heads[J];
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) heads[j] = LoadPairs(q + kWidth * j);
    q += lanes;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Pairs row = SplatPair(k + static_cast<size_t>(r) * dim / 2 + c);
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) acc[r][j] = AddDot(acc[r][j], heads[j], row);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) StoreSums(acc[r][j], s + static_cast<size_t>(r) * lanes + kWidth * j);
  }
}

template <int R>
EMBERKV_INLINE void ScoreRows(const uint32_t* q, const uint32_t* k, int lanes, int dim, float* s) {
  constexpr int kAtOnce = kHeadVectors * kWidth;
  int h = 0;
  for (; h + kAtOnce <= lanes; h += kAtOnce) ScoreBlock<R, kHeadVectors>(q + h, k, lanes, dim, s + h);
  for (; h < lanes; h += kWidth) ScoreBlock<R, 1>(q + h, k, lanes, dim, s + h);
}

void Scores(const uint32_t* q, const uint32_t* k, int rows, int lanes, int dim, float* s, uint32_t* v) {
  int done = 0;
  for (int r = 0; r < rows;) {
    const uint32_t* block = k + static_cast<size_t>(r) * dim / 2;
    float* scores = s + static_cast<size_t>(r) * lanes;
    if (rows - r >= kRowsAtOnce) {
      ScoreRows<kRowsAtOnce>(q, block, lanes, dim, scores);
      r += kRowsAtOnce;
    } else if (kRowsAtOnce > 4 && rows - r >= 4) {
      ScoreRows<4>(q, block, lanes, dim, scores);
      r += 4;
    } else {
      ScoreRows<2>(q, block, lanes, dim, scores);
      r += 2;
    }
    // The rows lie in the first cache now.
    for (; done < r; done += 2) {
      const uint32_t* first = k + static_cast<size_t>(done) * dim / 2;
      for (int c = 0; c < dim; c += kStripChannels) {
        PairUp(first + c / 2, first + (dim + c) / 2,
               v + static_cast<size_t>(c) * kStripPairs + done / 2 * kStripChannels);
      }
    }
  }
}

EMBERKV_INLINE F32x16 ZeroBelow(F32x16 x, float limit, F32x16 value) {
#if defined(__AVX512F__)
  const __mmask16 is_below = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_LT_OQ);
  return (F32x16)_mm512_mask_mov_ps((__m512)value, is_below, _mm512_setzero_ps());
#else
  return Select(x < Splat(limit), F32x16{}, value);
#endif
}

// e^x for x <= 0, and 0 from kLeastExponent down.
EMBERKV_INLINE F32x16 Weight(F32x16 x) { return ZeroBelow(x, kLeastExponent, ExpInRange(x)); }

// Pairs of two rows' weights, rounded to bf16.
EMBERKV_INLINE U32x16 RoundPairs(F32x16 first, F32x16 second) {
#if defined(__AVX512BF16__)
  const __m512i in_turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh((__m512)first, (__m512)second);
  return (U32x16)_mm512_permutexvar_epi16(in_turn, rounded);
#else
  return AsBits(RoundBf16(first)) | (AsBits(RoundBf16(second)) >> 16);
#endif
}

// ReduceSum (base/simd.h) where lane i is vector i.
EMBERKV_INLINE F32x16 SumOfVectors(F32x16 (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int width = kLanes / 2; width >= 1; width /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  }
  return v[0];
}

// One vector of heads.
EMBERKV_INLINE void SoftmaxHeads(const float* s, int rows, float scale, int lanes, float* m, float* l,
                                 float* rescale, uint32_t* p) {
  const auto raw = [&](int r) { return Load(s + static_cast<size_t>(r) * lanes); };
  const auto score = [&](int r) { return raw(r) * Splat(scale); };
  const F32x16 before = Load(m);
  F32x16 most = raw(0);  // multiplying by a positive scale keeps the order
  for (int r = 1; r < rows; ++r) most = Max(most, raw(r));
  const F32x16 top = Max(before, most * Splat(scale));
  F32x16 sums[kLanes] = {};
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    for (int r = i; r < rows; r += kLanes) {
      const F32x16 first = Weight(score(r) - top), second = Weight(score(r + 1) - top);
      sums[i] += first;
      sums[i + 1] += second;
      const U32x16 pair = RoundPairs(first, second);
      std::memcpy(p + static_cast<size_t>(r / 2) * lanes, &pair, sizeof pair);
    }
  }
  const F32x16 factor = Weight(before - top);
  Store(top, m);
  Store(factor, rescale);
  Store(Load(l) * factor + SumOfVectors(sums), l);
}

void Softmax(float* s, int rows, uint64_t live, float scale, int lanes, float* m, float* l, float* rescale,
             uint32_t* p) {
  for (int r = 0; r < rows; ++r) {
    if ((live >> r & 1) != 0) continue;
    for (int h = 0; h < lanes; h += kLanes)
      Store(Splat(-__builtin_inff()), s + static_cast<size_t>(r) * lanes + h);
  }
  for (int h = 0; h < lanes; h += kLanes) {
    SoftmaxHeads(s + h, rows, scale, lanes, m + h, l + h, rescale + h, p + h);
  }
}

constexpr float kOnes[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};

// kHeadsAtOnce heads x two vectors of channels. `o` is [heads][kStripChannels].
EMBERKV_INLINE void WeighBlock(const uint32_t* p, const uint32_t* v, int pairs, int lanes,
                               const float* rescale, float* o) {
  constexpr int H = kHeadsAtOnce;
  Sums acc[H][2];
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h) acc[h][0] = acc[h][1] = Sums{};
  for (int r = 0; r < pairs; ++r) {
    const Pairs v0 = LoadPairs(v), v1 = LoadPairs(v + kWidth);
    v += kStripChannels;
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const Pairs weight = SplatPair(p + h);
      acc[h][0] = AddDot(acc[h][0], weight, v0);
      acc[h][1] = AddDot(acc[h][1], weight, v1);
    }
    p += lanes;
  }
  if (std::memcmp(rescale, kOnes, H * sizeof *kOnes) == 0) {  // most tiles do not raise a maximum
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      float* out = o + h * kStripChannels;
      StoreSums(LoadSums(out) + acc[h][0], out);
      StoreSums(LoadSums(out + kWidth) + acc[h][1], out + kWidth);
    }
    return;
  }
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h) {
    float* out = o + h * kStripChannels;
    const Sums factor = rescale[h] - Sums{};
    StoreSums(LoadSums(out) * factor + acc[h][0], out);
    StoreSums(LoadSums(out + kWidth) * factor + acc[h][1], out + kWidth);
  }
}

void Weigh(const uint32_t* p, const uint32_t* v, int rows, int heads, int lanes, const float* rescale,
           float* o) {
  for (int h = 0; h < heads; h += kHeadsAtOnce) {
    for (int c = 0; c < kStripChannels; c += 2 * kWidth) {
      WeighBlock(p + h, v + c, rows / 2, lanes, rescale + h, o + h * kStripChannels + c);
    }
  }
}

void Finish(const float* o, const float* m, const float* l, const float* sink, int heads, int dim,
            float* out) {
  const size_t strip_size = static_cast<size_t>(AttentionLanes(heads)) * kStripChannels;
  for (int h = 0; h < heads; ++h) {
    const float denominator = l[h] + ReduceMax(Exp(Splat(sink[h] - m[h])));
    const float* in = o + h * kStripChannels;
    float* to = out + static_cast<size_t>(h) * dim;
    for (int c = 0; c < dim; c += kStripChannels) {
      Store(RoundBf16(Load(in) / Splat(denominator)), to + c);
      Store(RoundBf16(Load(in + kLanes) / Splat(denominator)), to + c + kLanes);
      in += strip_size;
    }
  }
}

}  // namespace

const SparseAttentionKernels kSparseAttentionKernels = {PackQueries, Scores, Softmax, Weigh, Finish};

}  // namespace EMBERKV_ISA
}  // namespace emberkv
