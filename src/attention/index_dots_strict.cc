// Lanes are keys: 16 a vector, two vectors a tile, 8 heads at a time in 16 accumulators. While the
// heads of one batch are multiplied, the sums of the batch before are rounded and the next tile is
// expanded: a few instructions amid the multiplications of every step, because these leave pipes
// free, but only as many as the scheduler can see at a time.
#include "attention/index_dots.h"

#if defined(EMBERKV_INDEX_DOTS)

#include <immintrin.h>

#include <cstring>

#include "base/simd.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr uint8_t kZeroGroupCode = 1;  // the e8m0 code that the encoder gives a group of zeros
constexpr int kGroupHeads = 4;         // at a time where groups are summed apart

struct alignas(64) Tile {
  uint8_t codes[kDotMaxGroups * kSteps][2][64];  // [step][half][16 keys][4 channels], plus 128
  float units[kDotMaxGroups][kDotTileRows];      // 2^exponent
  uint8_t shifts[2][64];                         // [half][16 keys][4 groups], times 16
  bool narrow;
  int low,
      high;  // the least and greatest exponent; low is kUnusable where a scale is NaN or subnormal
};

struct alignas(64) Constants {
  uint8_t table[64];             // twice an e2m1 value, shifted by 0 to 3, plus 128
  uint8_t nibble[64];            // 15
  uint8_t byte_of_group[4][64];  // shuffles byte g of every 4 into all four
};

void FillConstants(Constants* c) {
  const int magnitudes[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  for (int i = 0; i < 64; ++i) {
    const int value = magnitudes[i & 7] << (i >> 4);
    c->table[i] = static_cast<uint8_t>((i & 8) != 0 ? 128 - value : 128 + value);
    c->nibble[i] = 15;
    for (int g = 0; g < 4; ++g) c->byte_of_group[g][i] = static_cast<uint8_t>((i & 12) + g);
  }
}

// The intrinsic, but in place: g++ 12 copies its accumulators and then runs out of registers.
EMBERKV_INLINE void AddProducts(__m512i keys, __m512i query, __m512i* acc) {
  asm volatile("vpdpbusd %2, %1, %0" : "+v"(*acc) : "v"(keys), "v"(query));
}

EMBERKV_INLINE __m512 PowersOfTwo(__m512i e8m0_codes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(e8m0_codes, 23));
}

// Makes scales in the last `groups` of 4 bytes the first, and repeats the first for the groups that
// are not.
void RepeatFirstGroup(int groups, uint8_t (*scales)[4]) {
  for (int r = 0; r < kDotTileRows; ++r) {
    uint8_t bytes[4];
    for (int g = 0; g < 4; ++g) bytes[g] = scales[r][4 - groups + (g < groups ? g : 0)];
    std::memcpy(scales[r], bytes, 4);
  }
}

// A group of zeros has the exponent of its neighbours: it fits any.
void AdoptExponents(const uint8_t* const* rows, int groups, uint8_t (*scales)[4]) {
  for (int r = 0; r < kDotTileRows; ++r) {
    uint8_t least = 255;
    bool zero[4] = {};
    for (int g = 0; g < groups; ++g) {
      uint64_t words[2];
      std::memcpy(words, rows[r] + 16 * g, sizeof words);
      zero[g] =
          scales[r][g] == kZeroGroupCode && ((words[0] | words[1]) & 0x7777777777777777u) == 0;
      if (!zero[g] && scales[r][g] < least) least = scales[r][g];
    }
    if (least == 255) least = 127;
    for (int g = 0; g < 4; ++g) {
      if (g >= groups)
        scales[r][g] = scales[r][0];
      else if (zero[g])
        scales[r][g] = least;
    }
  }
}

// What the scales of a tile allow. `scales` [32][4]; groups that a row lacks repeat its first.
void ClassifyScales(const uint8_t (*scales)[4], Tile* tile) {
  __m512i v[2], least[2], spread[2];
  __m512i low = _mm512_set1_epi8(-1), high = _mm512_setzero_si512();
  bool narrow = true;
  for (int u = 0; u < 2; ++u) {
    v[u] = _mm512_loadu_si512(scales + 16 * u);
    __m512i a = _mm512_min_epu8(v[u], _mm512_ror_epi32(v[u], 8));
    __m512i b = _mm512_max_epu8(v[u], _mm512_ror_epi32(v[u], 8));
    least[u] = _mm512_min_epu8(a, _mm512_ror_epi32(a, 16));
    b = _mm512_max_epu8(b, _mm512_ror_epi32(b, 16));
    spread[u] = _mm512_sub_epi8(b, least[u]);
    narrow = narrow && _mm512_cmpgt_epu8_mask(spread[u], _mm512_set1_epi8(kNarrowSpread)) == 0;
    low = _mm512_min_epu8(low, least[u]);
    high = _mm512_max_epu8(high, b);
  }
  const __m512i byte = _mm512_set1_epi32(255);
  const int low_code = static_cast<int>(_mm512_reduce_min_epu32(_mm512_and_si512(low, byte)));
  const int high_code = static_cast<int>(_mm512_reduce_max_epu32(_mm512_and_si512(high, byte)));
  tile->narrow = narrow;
  tile->low = low_code == 0 || high_code == 255 ? kUnusable : low_code - 127;
  tile->high = high_code - 127;
  for (int u = 0; u < 2; ++u) {
    const __m512i shift =
        narrow ? _mm512_slli_epi32(_mm512_sub_epi8(v[u], least[u]), 4) : _mm512_setzero_si512();
    _mm512_store_si512(tile->shifts[u], shift);
    const __m512i codes = narrow ? least[u] : v[u];
    for (int g = 0; g < kDotMaxGroups; ++g) {
      const __m512i code =
          _mm512_and_si512(_mm512_srlv_epi32(codes, _mm512_set1_epi32(8 * g)), byte);
      _mm512_store_ps(tile->units[g] + 16 * u, PowersOfTwo(code));
    }
  }
}

// Two vectors of dots to bf16 and back: the even and the odd of their 32 numbers. None is
// subnormal, which the instruction would flush.
struct EvenOdd {
  __m512 even, odd;
};
EMBERKV_INLINE __m512i RoundPair(__m512 first, __m512 second) {
  return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}
EMBERKV_INLINE EvenOdd Widen(__m512i bf16) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bf16, 16)),
          _mm512_castsi512_ps(
              _mm512_and_si512(bf16, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}

// max(bf(dot), 0) of one head for 32 keys.
EMBERKV_INLINE __m512i RectifyDots(__m512 dot0, __m512 dot1) {
  return _mm512_max_epi16(RoundPair(dot0, dot1),
                          _mm512_setzero_si512());  // bf16 below 0 is below 0 as int16
}

// totals += bf(dots * weight), in the steps AddTo(RoundPair(Weight)). The totals are in the order
// that two rounds of Widen leave behind; StoreScores undoes it.
EMBERKV_INLINE EvenOdd Weight(__m512i dots, float weight) {
  const EvenOdd d = Widen(dots);
  const __m512 w = _mm512_set1_ps(weight);
  return {_mm512_mul_ps(d.even, w), _mm512_mul_ps(d.odd, w)};
}
EMBERKV_INLINE void AddTo(__m512i weighted, EvenOdd* totals) {
  const EvenOdd e = Widen(weighted);
  totals->even = _mm512_add_ps(totals->even, e.even);
  totals->odd = _mm512_add_ps(totals->odd, e.odd);
}
struct WeightedDots {
  EvenOdd products;
  __m512i rounded;
};
constexpr int kRoundParts = 3;

EMBERKV_INLINE __m512 RoundToBf16(__m512 v) { return (__m512)RoundBf16Finite((F32x16)v); }

// Writes the 32 scores times `units` [32].
EMBERKV_INLINE void StoreScores(const EvenOdd& totals, const float* units, float* scores) {
  const __m512i order = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
  const __m512i later = _mm512_add_epi32(order, _mm512_set1_epi32(4));
  const __m512 first = _mm512_permutex2var_ps(totals.even, order, totals.odd);
  const __m512 second = _mm512_permutex2var_ps(totals.even, later, totals.odd);
  _mm512_storeu_ps(scores, _mm512_mul_ps(RoundToBf16(first), _mm512_load_ps(units)));
  _mm512_storeu_ps(scores + 16, _mm512_mul_ps(RoundToBf16(second), _mm512_load_ps(units + 16)));
}

class Scorer {
 public:
  Scorer(const DotKeys& keys, const DotQuery* queries, const int* visible, int num_queries,
         float* scores, size_t stride, uint16_t* left_plain)
      : keys_(keys),
        queries_(queries),
        visible_(visible),
        num_queries_(num_queries),
        scores_(scores),
        stride_(stride),
        left_plain_(left_plain),
        groups_(0),
        pieces_(0) {
    FillConstants(&constants_);
    // A query that cannot use the path may not be filled in; the shape is that of any that is.
    for (int i = 0; i < num_queries; ++i) {
      if (queries[i].exact) groups_ = queries[i].groups;
    }
    piece_ = pieces_ = 2 * groups_;
  }

  void Run() {
    const int tiles = (keys_.count + kDotTileRows - 1) / kDotTileRows;
    ReadScalesOf(0);
    ExpandRest();
    BeginTile(0);
    if (tiles > 1) ReadScalesOf(1);
    ExpandRest();
    for (int t = 0; t < tiles; ++t) {
      const Tile& tile = tiles_[t & 1];
      left_plain_[t] = ChoosePaths(t, tile);
      if (t + 1 < tiles) BeginTile(t + 1);
      if (t + 2 < tiles) ReadScalesOf(t + 2);
      for (int i = 0; i < num_queries_; ++i) {
        float* scores = scores_ + static_cast<size_t>(i) * stride_ + kDotTileRows * t;
        if (path_[i] == Path::kWhole) ScoreWhole(tile, queries_[i], scores);
        if (path_[i] == Path::kGroups) ScoreGroups(tile, queries_[i], scores);
      }
      ExpandRest();
    }
    while (heads_left_ > 0) RoundOneHead(&totals_);
    FinishScores();
  }

 private:
  enum class Path : uint8_t { kNone, kWhole, kGroups };

  // How each query is scored in tile t: one integer sum over all channels, sums per scale group, or
  // neither, for which it returns bits. Spreads the expansion of the next tile over that work.
  uint16_t ChoosePaths(int t, const Tile& tile) {
    unsigned plain = 0;
    slots_ = 0;
    credit_ = 0;
    for (int i = 0; i < num_queries_; ++i) {
      const DotQuery& query = queries_[i];
      path_[i] = Path::kNone;
      if (visible_[i] <= kDotTileRows * t) continue;
      if (!query.exact || tile.low < query.low || tile.high > query.high) {
        plain |= 1u << i;
        continue;
      }
      path_[i] = tile.narrow && query.narrow ? Path::kWhole : Path::kGroups;
      slots_ += query.batches * groups_ * (path_[i] == Path::kWhole ? 1 : 2);
    }
    return static_cast<uint16_t>(plain);
  }

  // Tile t, whose scales have been read, becomes the next to be expanded.
  void BeginTile(int t) {
    next_ = &tiles_[t & 1];
    next_rows_ = keys_.rows + kDotTileRows * t;
    piece_ = 0;
    uint8_t(*scales)[4] = scales_[t & 1];
    if (groups_ < kDotMaxGroups) RepeatFirstGroup(groups_, scales);
    ClassifyScales(scales, next_);
    if (next_->low == kZeroGroupCode - 127) {
      AdoptExponents(next_rows_, groups_, scales);
      ClassifyScales(scales, next_);
    }
  }

  void ReadScalesOf(int t) {
    scales_of_ = t;
    scales_read_ = 0;
  }
  // Reads the last 4 bytes of the next 4 rows of tile scales_of_.
  [[gnu::always_inline]] void ReadScales() {
    const size_t end = static_cast<size_t>(groups_) * 17;
    const uint8_t* const* rows = keys_.rows + kDotTileRows * scales_of_ + scales_read_;
    uint8_t(*scales)[4] = scales_[scales_of_ & 1] + scales_read_;
    scales_read_ += 4;
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(rows[r + kDotAhead]), _MM_HINT_T0);
      std::memcpy(scales[r], rows[r] + end - 4, 4);
    }
  }

  // Codes of 16 keys and one scale group of the next tile, in kSteps parts: rows are read,
  // transposed by 4 channels and looked up. What is between two parts stays in registers.
  struct Piece {
    int half, group;
    const uint8_t* const* rows;
    uint8_t (*codes)[2][64];
    __m512i v[4];
  };
  [[gnu::always_inline]] Piece TakePiece() {
    Piece p;
    p.half = piece_ & 1, p.group = piece_ >> 1;
    ++piece_;
    p.rows = next_rows_ + 16 * p.half;
    p.codes = next_->codes + kSteps * p.group;
    return p;
  }
  [[gnu::always_inline]] void ExpandPart(int part, Piece* p) {
    __m512i(&v)[4] = p->v;
    if (part < 4) {
      v[part] = GatherRows(p->rows + part, 16 * p->group);
      KeepHere(&v[part]);
      return;
    }
    if (part == 4) {
      const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
      const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
      v[0] = a, v[1] = b, v[2] = c, v[3] = d;
    } else if (part == 5) {
      const __m512i a = v[0], b = v[1], c = v[2], d = v[3];
      v[0] = _mm512_unpacklo_epi64(a, c), v[1] = _mm512_unpackhi_epi64(a, c);
      v[2] = _mm512_unpacklo_epi64(b, d), v[3] = _mm512_unpackhi_epi64(b, d);
    } else {
      LookUp(*p, 2 * (part - 6));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) KeepHere(&v[j]);
  }

  // 16 bytes at `offset` of rows 0, 4, 8 and 12 of `rows`.
  [[gnu::always_inline]] static __m512i GatherRows(const uint8_t* const* rows, int offset) {
    const auto part = [&](int r) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + offset));
    };
    __m512i z = _mm512_castsi128_si512(part(0));
    z = _mm512_inserti32x4(z, part(4), 1);
    z = _mm512_inserti32x4(z, part(8), 2);
    return _mm512_inserti32x4(z, part(12), 3);
  }

  // Two words of 8 channels of 16 keys: of each first the even, then the odd.
  [[gnu::always_inline]] void LookUp(const Piece& p, int first) {
    constexpr int kAndOr = 0xEA;  // (a & b) | c
    const Constants& constants = *FromMemory(&constants_);
    const __m512i shift = _mm512_shuffle_epi8(_mm512_load_si512(next_->shifts[p.half]),
                                              _mm512_load_si512(constants.byte_of_group[p.group]));
    const __m512i table = _mm512_load_si512(constants.table);
    const __m512i nibble = _mm512_load_si512(constants.nibble);
#pragma GCC unroll 2
    for (int j = first; j < first + 2; ++j) {
      const __m512i even = _mm512_ternarylogic_epi32(p.v[j], nibble, shift, kAndOr);
      const __m512i odd =
          _mm512_ternarylogic_epi32(_mm512_srli_epi16(p.v[j], 4), nibble, shift, kAndOr);
      _mm512_store_si512(p.codes[2 * j][p.half], _mm512_permutexvar_epi8(even, table));
      _mm512_store_si512(p.codes[2 * j + 1][p.half], _mm512_permutexvar_epi8(odd, table));
    }
  }

  [[gnu::always_inline]] void ExpandPiece() {
    Piece piece = TakePiece();
#pragma GCC unroll 8
    for (int part = 0; part < kSteps; ++part) ExpandPart(part, &piece);
    if (scales_read_ < kDotTileRows) ReadScales();
  }
  void ExpandRest() {
    while (piece_ < pieces_) ExpandPiece();
    while (scales_read_ < kDotTileRows) ReadScales();
  }
  // Whether a piece is to be expanded amid the scale group of products that comes next.
  bool IsPieceDue() {
    credit_ += pieces_;
    if (credit_ < slots_ || piece_ == pieces_) return false;
    credit_ -= slots_;
    return true;
  }

  // Weights and adds one head of the batch before, in kRoundParts parts.
  [[gnu::always_inline]] void RoundPart(int part, WeightedDots* weighted, EvenOdd* totals) {
    const int h = kDotHeads - heads_left_;
    if (part == 0) {
      weighted->products = Weight(dots_[h], weights_due_[h]);
      KeepHere(&weighted->products.even);
      KeepHere(&weighted->products.odd);
    } else if (part == 1) {
      weighted->rounded = RoundPair(weighted->products.even, weighted->products.odd);
      KeepHere(&weighted->rounded);
    } else {
      AddTo(weighted->rounded, totals);
      KeepHere(&totals->even);
      KeepHere(&totals->odd);
      --heads_left_;
    }
  }
  [[gnu::always_inline]] void RoundOneHead(EvenOdd* totals) {
    WeightedDots weighted;
    for (int part = 0; part < kRoundParts; ++part) RoundPart(part, &weighted, totals);
  }
  void FinishScores() {
    if (scores_due_ == nullptr) return;
    StoreScores(totals_, units_due_, scores_due_);
    totals_ = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    scores_due_ = nullptr;
  }

  // Four steps of 4 channels: 8 heads x 32 keys. Amid them one head of the batch before is rounded
  // and, if `piece` is given, its parts from `part` on are expanded.
  template <bool kExpands>
  [[gnu::always_inline]] void MultiplySteps(const uint8_t (*keys)[2][64], const int8_t* query,
                                            int part, Piece* piece, EvenOdd* totals,
                                            __m512i (&acc)[kDotHeads][2]) {
    WeightedDots weighted;
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const __m512i k0 = _mm512_load_si512(keys[s][0]), k1 = _mm512_load_si512(keys[s][1]);
#pragma GCC unroll 8
      for (int h = 0; h < kDotHeads; ++h) {
        if (h == kDotHeads / 4 && s > 0) RoundPart(s - 1, &weighted, totals);
        if (kExpands && h == kDotHeads / 2) ExpandPart(part + s, piece);
        int32_t codes;
        std::memcpy(&codes, query + 4 * (kDotHeads * s + h), sizeof codes);
        const __m512i q = _mm512_set1_epi32(codes);
        AddProducts(k0, q, &acc[h][0]);
        AddProducts(k1, q, &acc[h][1]);
      }
    }
  }

  // One integer sum over all channels. Its rounding is left to the batch that comes next, of
  // whichever query.
  void ScoreWhole(const Tile& tile, const DotQuery& query, float* scores) {
    for (int batch = 0; batch < query.batches; ++batch) {
      MultiplyBatch(tile, query, batch);
      FinishScores();
      weights_due_ = query.folded + kDotHeads * batch;
      heads_left_ = kDotHeads;
    }
    scores_due_ = scores;
    std::memcpy(units_due_, tile.units[0], sizeof units_due_);
  }

  void MultiplyBatch(const Tile& tile, const DotQuery& query, int batch) {
    __m512i acc[kDotHeads][2];
#pragma GCC unroll 8
    for (int h = 0; h < kDotHeads; ++h) {
      acc[h][0] = acc[h][1] = _mm512_set1_epi32(query.bias[kDotHeads * batch + h]);
    }
    const int8_t* codes =
        query.codes + static_cast<size_t>(batch) * groups_ * kScaleGroup * kDotHeads;
    EvenOdd totals = totals_;  // stores compete with multiplications for a pipe
    for (int g = 0; g < groups_; ++g) {
      const auto* keys = tile.codes + kSteps * g;
      const int8_t* group = codes + kGroupCodes * g;
      if (!IsPieceDue()) {
        MultiplySteps<false>(keys, group, 0, nullptr, &totals, acc);
        MultiplySteps<false>(keys + 4, group + kGroupCodes / 2, 0, nullptr, &totals, acc);
        continue;
      }
      Piece piece = TakePiece();
      MultiplySteps<true>(keys, group, 0, &piece, &totals, acc);
      MultiplySteps<true>(keys + 4, group + kGroupCodes / 2, 4, &piece, &totals, acc);
      if (scales_read_ < kDotTileRows) ReadScales();
    }
    while (heads_left_ > 0) RoundOneHead(&totals);  // keys of few groups
    totals_ = totals;
#pragma GCC unroll 8
    for (int h = 0; h < kDotHeads; ++h) {
      dots_[h] = RectifyDots(_mm512_cvtepi32_ps(acc[h][0]), _mm512_cvtepi32_ps(acc[h][1]));
    }
  }

  // Integer sums per scale group, added in fp32 like the plain path's.
  void ScoreGroups(const Tile& tile, const DotQuery& query, float* scores) {
    EvenOdd totals = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int first = 0; first < kDotHeads * query.batches; first += kGroupHeads) {
      __m512 dots[kGroupHeads][2];
#pragma GCC unroll 4
      for (int h = 0; h < kGroupHeads; ++h) dots[h][0] = dots[h][1] = _mm512_setzero_ps();
      for (int g = 0; g < groups_; ++g) {
        AddGroup(tile, query, first, g, dots);
        if (IsPieceDue()) ExpandPiece();
      }
#pragma GCC unroll 4
      for (int h = 0; h < kGroupHeads; ++h) {
        const EvenOdd products =
            Weight(RectifyDots(dots[h][0], dots[h][1]), query.weights[first + h]);
        AddTo(RoundPair(products.even, products.odd), &totals);
      }
    }
    alignas(64) float ones[kDotTileRows];
    _mm512_store_ps(ones, _mm512_set1_ps(1.0f));
    _mm512_store_ps(ones + 16, _mm512_set1_ps(1.0f));
    StoreScores(totals, ones, scores);
  }

  [[gnu::always_inline]] void AddGroup(const Tile& tile, const DotQuery& query, int first, int g,
                                       __m512 (&dots)[kGroupHeads][2]) const {
    const int batch = first / kDotHeads, half = first % kDotHeads;
    const int8_t* codes =
        query.codes + (static_cast<size_t>(batch) * groups_ + g) * kGroupCodes + 4 * half;
    const int32_t* bias = query.group_bias + (batch * kDotMaxGroups + g) * kDotHeads + half;
    __m512i acc[kGroupHeads][2];
#pragma GCC unroll 4
    for (int h = 0; h < kGroupHeads; ++h) acc[h][0] = acc[h][1] = _mm512_set1_epi32(bias[h]);
#pragma GCC unroll 8
    for (int s = 0; s < kSteps; ++s) {
      const __m512i k0 = _mm512_load_si512(tile.codes[kSteps * g + s][0]);
      const __m512i k1 = _mm512_load_si512(tile.codes[kSteps * g + s][1]);
#pragma GCC unroll 4
      for (int h = 0; h < kGroupHeads; ++h) {
        int32_t four;
        std::memcpy(&four, codes + 4 * (kDotHeads * s + h), sizeof four);
        const __m512i q = _mm512_set1_epi32(four);
        AddProducts(k0, q, &acc[h][0]);
        AddProducts(k1, q, &acc[h][1]);
      }
    }
    const __m512 u0 = _mm512_load_ps(tile.units[g]), u1 = _mm512_load_ps(tile.units[g] + 16);
#pragma GCC unroll 4
    for (int h = 0; h < kGroupHeads; ++h) {
      const __m512 unit = _mm512_set1_ps(query.group_units[kDotMaxGroups * (first + h) + g]);
      const __m512 d0 = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[h][0]), unit);
      const __m512 d1 = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[h][1]), unit);
      // Products with powers of two are exact, so the sum is rounded once.
      dots[h][0] = _mm512_fmadd_ps(d0, u0, dots[h][0]);
      dots[h][1] = _mm512_fmadd_ps(d1, u1, dots[h][1]);
    }
  }

  const DotKeys& keys_;
  const DotQuery* queries_;
  const int* visible_;
  int num_queries_;
  float* scores_;
  size_t stride_;
  uint16_t* left_plain_;
  int groups_;
  Path path_[kDotMaxQueries];

  // The tile to come.
  Tile* next_ = nullptr;
  const uint8_t* const* next_rows_ = nullptr;
  int scales_of_ = 0;  // the tile after it, whose scales are read meanwhile
  int scales_read_ = kDotTileRows;
  int pieces_;
  int piece_ = 0;  // expanded so far
  int slots_ = 0;  // places in the work on this tile where a piece can go in between
  int credit_ = 0;

  // The batch whose rounding is due; at first one of nothing.
  static constexpr float kNoWeights[kDotHeads] = {};
  int heads_left_ = kDotHeads;
  const float* weights_due_ = kNoWeights;
  float* scores_due_ =
      nullptr;  // where the totals go after it, if it is the last of a tile and query

  alignas(64) uint8_t scales_[2][kDotTileRows][4];  // of tiles by turns
  alignas(64) float units_due_[kDotTileRows];
  EvenOdd totals_ = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  __m512i dots_[kDotHeads] = {};
  Constants constants_;
  Tile tiles_[2];
};

}  // namespace

void DotScores(const DotKeys& keys, const DotQuery* queries, const int* visible, int num_queries,
               float* scores, size_t stride, uint16_t* left_plain) {
  Scorer(keys, queries, visible, num_queries, scores, stride, left_plain).Run();
}

}  // namespace emberkv::EMBERKV_ISA

#endif
