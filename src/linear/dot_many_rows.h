// Products of a panel with more than 8 rows by VDPBF16PS: blocks are decoded to bf16 once, a chunk
// of them at a time, and multiplied with all rows. For dot_kernels_strict.cc only.
#pragma once

#if defined(__AVX512BF16__)

#include <type_traits>

#include "linear/dot_words.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr int kChunkBlocks = 4;  // two chunks in bf16 are half of a first cache of 32 KiB
constexpr int kRowGroup = 6;     // rows whose sums and totals fill the registers
static_assert(kChunkBlocks % BlocksPerSum(WeightKind::kBf16) == 0);  // a run is in one chunk

// The blocks of a chunk on their way into bf16, step by step, so that the next chunk can be decoded
// amid the multiplications of this one, on pipes that these leave free. Each step also fetches what
// will be decoded a chunk later; of blocks that are bf16 already it does nothing else.
template <class Words>
class ChunkDecoding {
 public:
  // Blocks [first, first + blocks) of `panel`, one after the other into `out`.
  void Begin(const PanelView& panel, int first, int blocks, uint8_t* out) {
    panel_ = panel;
    first_ = first;
    out_ = out;
    block_ = 0;
    steps_left_ = blocks * kStepsOfBlock;
    for (int i = 0; i < blocks; ++i) is_folded_[i] = FoldScales(i);
    if (blocks > 0) BeginBlock();
  }
  int steps_left() const { return steps_left_; }

  [[gnu::always_inline]] void Step() {
    const Tables& tables = *FromMemory(&kTables);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const uint8_t* p = data_ + half * (kStepBytes / 2);
      _mm_prefetch(p + kChunkBlocks * BlockBytes(Words::kKind), _MM_HINT_T0);
      if constexpr (Words::kKind == WeightKind::kFp8) {
        Store(half, Words(tables, exponents_[block_]), p);
      } else if constexpr (Words::kKind == WeightKind::kFp4) {
        Store(half, Words(tables), p);
      }
    }
    out_ += Words::kPairs * kStepBytes;
    data_ += step_stride_;
    if (--steps_left_ % kStepsOfBlock != 0) return;
    ++block_;
    if (steps_left_ > 0) BeginBlock();
  }

  // Whether block i of the chunk has its scales in its values.
  bool is_folded(int i) const { return is_folded_[i]; }

 private:
  static constexpr int kStepsOfBlock = kWordsPerBlock / Words::kPairs;

  [[gnu::always_inline]] void Store(int half, const Words& words, const uint8_t* p) {
    __m512i pairs[Words::kPairs];
    Words::Decode(words, p, pairs);
    uint8_t* out = out_ + half * (kStepBytes / 2);
#pragma GCC unroll 4
    for (int i = 0; i < Words::kPairs; ++i, out += kStepBytes) {
      if constexpr (Words::kKind == WeightKind::kFp4)
        pairs[i] = Words::Scaled(words, pairs[i], row_exponents_[block_][half]);
      _mm512_store_si512(out, pairs[i]);
    }
  }
  [[gnu::always_inline]] void BeginBlock() {
    const BlockView block = panel_.block(first_ + block_);
    data_ = block.data;
    step_stride_ = block.step_stride;
  }
  // Notes the scales of block i, or none where they do not fit (dot_kernels.h).
  bool FoldScales(int i) {
    if constexpr (Words::kKind == WeightKind::kBf16) return true;
    if constexpr (Words::kKind == WeightKind::kFp8) {
      const uint8_t code = panel_.scales[first_ + i];
      exponents_[i] = CanFold(code) ? code - 127 : 0;
      return CanFold(code);
    }
    __mmask16 outside = 0;
    for (int half = 0; half < 2; ++half) {
      const __m512i exponent =
          _mm512_sub_epi32(ScaleCodes(panel_, first_ + i, half), _mm512_set1_epi32(127));
      outside |= _mm512_cmpgt_epi32_mask(_mm512_abs_epi32(exponent), _mm512_set1_epi32(kFoldRange));
      row_exponents_[i][half] = _mm512_or_si512(
          _mm512_slli_epi32(exponent, 23),
          _mm512_and_si512(_mm512_slli_epi32(exponent, 7), _mm512_set1_epi32(0xffff)));
    }
    if (outside != 0) row_exponents_[i][0] = row_exponents_[i][1] = _mm512_setzero_si512();
    return outside == 0;
  }

  PanelView panel_;
  int first_ = 0;
  uint8_t* out_ = nullptr;
  int steps_left_ = 0;
  int block_ = 0;  // of the chunk, being decoded
  const uint8_t* data_ = nullptr;
  size_t step_stride_ = 0;
  bool is_folded_[kChunkBlocks];
  int exponents_[kChunkBlocks];             // FP8
  __m512i row_exponents_[kChunkBlocks][2];  // FP4, in both halves of a pair, where bf16 has them
};

// Blocks in bf16 that lie one after the other, each `run_blocks` of them a sum, against R rows.
// Their totals stay in registers. After each sum `next` goes on by `steps`. Not inlined: with what
// else is alive around it, g++ would run out of registers.
template <int R, class Words>
[[gnu::noinline]] void MultiplyChunk(const uint8_t* data, int blocks, int run_blocks,
                                     const uint32_t* x, size_t block_stride, float* sums,
                                     ChunkDecoding<Words>* next, int steps) {
  __m512 totals[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    totals[r][0] = _mm512_loadu_ps(sums + kPanelRows * r);
    totals[r][1] = _mm512_loadu_ps(sums + kPanelRows * r + 16);
  }
  for (int first = 0; first < blocks; first += run_blocks) {
    __m512 acc[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    for (int b = first; b < first + run_blocks && b < blocks; ++b, x += block_stride) {
      for (int word = 0; word < kWordsPerBlock; ++word, data += kStepBytes) {
        const __m512i weights[2] = {_mm512_load_si512(data),
                                    _mm512_load_si512(data + kStepBytes / 2)};
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m512i input = _mm512_set1_epi32(static_cast<int>(x[r * kWordsPerBlock + word]));
          acc[r][0] = AddPair(acc[r][0], input, weights[0]);
          acc[r][1] = AddPair(acc[r][1], input, weights[1]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      totals[r][0] = _mm512_add_ps(totals[r][0], acc[r][0]);
      totals[r][1] = _mm512_add_ps(totals[r][1], acc[r][1]);
    }
    for (int i = 0; i < steps && next->steps_left() > 0; ++i) next->Step();
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    _mm512_storeu_ps(sums + kPanelRows * r, totals[r][0]);
    _mm512_storeu_ps(sums + kPanelRows * r + 16, totals[r][1]);
  }
}

constexpr int RowGroups(int num_rows) { return (num_rows + kRowGroup - 1) / kRowGroup; }

// body(R, first row) for groups of R rows of about the same size; R is a constant. More than 8 rows
// make groups of 4 to 6.
template <class Body>
EMBERKV_INLINE void ForRowGroups(int num_rows, const Body& body) {
  static_assert(kRowGroup == 6);
  int first = 0;
  for (int left = RowGroups(num_rows); left > 0; --left) {
    const int rows = (num_rows - first + left - 1) / left;
    switch (rows) {
      case 4:
        body(std::integral_constant<int, 4>(), first);
        break;
      case 5:
        body(std::integral_constant<int, 5>(), first);
        break;
      default:
        body(std::integral_constant<int, 6>(), first);
    }
    first += rows;
  }
}

}  // namespace
}  // namespace emberkv::EMBERKV_ISA

#endif
