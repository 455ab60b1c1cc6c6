#include "linear/dot_kernels.h"

#if defined(__AVX512BF16__)

#include <cstring>

#include "base/simd.h"
#include "linear/dot_many_rows.h"
#include "linear/dot_words.h"

namespace emberkv::EMBERKV_ISA {
namespace {

// How far ahead lines are fetched where that is done by hand: from memory into the second cache,
// and from there into the first.
constexpr int kFarAheadBytes = 12288;
constexpr int kAheadBytes = 1024;

// sums[R][32] += for each of B blocks in turn the sum `acc` times its scale; no scales: all are 1.
template <int R, int B>
EMBERKV_INLINE void AddToSums(const __m512 (&acc)[B][R][2], const __m512 (*scales)[2],
                              float* sums) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      float* at = sums + kPanelRows * r + 16 * half;
      __m512 sum = _mm512_loadu_ps(at);
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) {
        __m512 block = acc[b][r][half];
        if (scales != nullptr) block = _mm512_mul_ps(block, scales[b][half]);
        sum = _mm512_add_ps(sum, block);
      }
      _mm512_storeu_ps(at, sum);
    }
  }
  asm volatile("" : : : "memory");  // the sums stay where they are: there are no registers for them
}

EMBERKV_INLINE void FetchStep(const uint8_t* p) {
  for (int line = 0; line < static_cast<int>(kStepBytes); line += 64) {
    _mm_prefetch(p + kFarAheadBytes + line, _MM_HINT_T1);
    _mm_prefetch(p + kAheadBytes + line, _MM_HINT_T0);
  }
}

// Adds the products of B neighbouring blocks with R rows to their sums. Blocks of one group
// (packed_matrix.h): where R rows alone would wait for the latency of their sums, the sums of
// several blocks grow side by side. Or one run of `run_blocks` blocks that make one sum.
template <class Words, int R, int B>
EMBERKV_INLINE void AddBlocks(const Words& words, const BlockView& first, int run_blocks,
                              const uint32_t* x, size_t block_stride, const __m512 (*scales)[2],
                              float* sums) {
  constexpr int kSteps = kWordsPerBlock / Words::kPairs;
  // The hardware fetches ahead what is read in order.
  constexpr bool kFetchesAhead = B < BlocksTogether(Words::kKind);
  __m512 acc[B][R][2];
#pragma GCC unroll 8
  for (int b = 0; b < B; ++b) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[b][r][0] = acc[b][r][1] = _mm512_setzero_ps();
  }
  const uint8_t* data = first.data;
  for (int run = 0; run < run_blocks; ++run, x += block_stride) {
    for (int step = 0; step < kSteps; ++step, data += first.step_stride) {
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) {
        const uint8_t* p = data + b * kStepBytes;
        if constexpr (kFetchesAhead) FetchStep(p);
        __m512i pairs[2][Words::kPairs];
        Words::Decode(words, p, pairs[0]);
        Words::Decode(words, p + kStepBytes / 2, pairs[1]);
#pragma GCC unroll 4
        for (int i = 0; i < Words::kPairs; ++i) {
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            const uint32_t* pair =
                x + b * block_stride + r * kWordsPerBlock + step * Words::kPairs + i;
            const __m512i input = _mm512_set1_epi32(static_cast<int>(*pair));
            acc[b][r][0] = AddPair(acc[b][r][0], input, pairs[0][i]);
            acc[b][r][1] = AddPair(acc[b][r][1], input, pairs[1][i]);
          }
        }
      }
    }
  }
  AddToSums<R, B>(acc, scales, sums);
}

// The same for one block of FP8, whose scale is in `words`, and so many rows that the dots take
// most of the time: each step is decoded amid the dots of the step before, on pipes that these
// leave free.
template <int R>
EMBERKV_INLINE void AddFp8Block(const Fp8Words& words, const BlockView& block, const uint32_t* x,
                                float* sums) {
  constexpr int kSteps = kWordsPerBlock / Fp8Words::kPairs;
  __m512 acc[1][R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[0][r][0] = acc[0][r][1] = _mm512_setzero_ps();
  __m512i pairs[2][2][Fp8Words::kPairs];  // of this step and the next, by turns
  const uint8_t* data = block.data;
  Fp8Words::Decode(words, data, pairs[0][0]);
  Fp8Words::Decode(words, data + kStepBytes / 2, pairs[0][1]);
  for (int first = 0; first < kSteps; first += 2) {
#pragma GCC unroll 2
    for (int turn = 0; turn < 2; ++turn) {
      const int step = first + turn;
      FetchStep(data);
      data += step + 1 < kSteps ? block.step_stride : 0;  // the last is decoded twice
#pragma GCC unroll 2
      for (int i = 0; i < Fp8Words::kPairs; ++i) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          if (r == R / 2) {
            __m512i* next = pairs[1 - turn][i];
            Fp8Words::Decode(words, data + i * (kStepBytes / 2), next);
            KeepHere(&next[0]);
            KeepHere(&next[1]);
          }
          const uint32_t* pair = x + r * kWordsPerBlock + step * Fp8Words::kPairs + i;
          const __m512i input = _mm512_set1_epi32(static_cast<int>(*pair));
          acc[0][r][0] = AddPair(acc[0][r][0], input, pairs[turn][0][i]);
          acc[0][r][1] = AddPair(acc[0][r][1], input, pairs[turn][1][i]);
        }
      }
    }
  }
  AddToSums<R, 1>(acc, nullptr, sums);
}

// Of the run that starts at block b; the last may be shorter.
EMBERKV_INLINE int RunBlocks(const PanelView& panel, int b) {
  const int left = panel.num_blocks - b;
  return left < BlocksPerSum(panel.kind) ? left : BlocksPerSum(panel.kind);
}

template <class Words, int R, int B>
EMBERKV_INLINE void AddScaledBlocks(const Words& words, const PanelView& panel, int b,
                                    const uint32_t* x, float* sums) {
  constexpr size_t kBlockStride = size_t{R} * kWordsPerBlock;
  if constexpr (Words::kKind == WeightKind::kBf16) {
    AddBlocks<Words, R, B>(words, panel.block(b), RunBlocks(panel, b), x + b * kBlockStride,
                           kBlockStride, nullptr, sums);
    return;
  }
  __m512 scales[B][2];
#pragma GCC unroll 8
  for (int i = 0; i < B; ++i) {
    scales[i][0] = Scale<Words::kKind>(panel, b + i, 0);
    scales[i][1] = Scale<Words::kKind>(panel, b + i, 1);
  }
  AddBlocks<Words, R, B>(words, panel.block(b), 1, x + b * kBlockStride, kBlockStride, scales,
                         sums);
}

// How many blocks of a group R rows are multiplied with side by side.
template <int R>
constexpr int BlocksSideBySide(WeightKind kind) {
  return R <= 2 ? BlocksTogether(kind) : R <= 4 && BlocksTogether(kind) > 1 ? 2 : 1;
}

template <class Words, int R>
void FewRows(const PanelView& given, const uint32_t* x, float* sums) {
  constexpr int kSideBySide = BlocksSideBySide<R>(Words::kKind);
  constexpr int kGroup = BlocksTogether(Words::kKind);
  constexpr int kRun = BlocksPerSum(Words::kKind);
  PanelView panel = given;
  panel.kind = Words::kKind;  // known to the compiler
  const Words words;
  int b = 0;
  if constexpr (kSideBySide > 1) {
    for (const int grouped = panel.num_blocks / kGroup * kGroup; b < grouped; b += kSideBySide) {
      AddScaledBlocks<Words, R, kSideBySide>(words, panel, b, x, sums);
    }
  }
  for (; b < panel.num_blocks; b += kRun) {
    if constexpr (Words::kKind == WeightKind::kFp8 && kSideBySide == 1) {
      if (CanFold(panel.scales[b])) {
        AddFp8Block<R>(Fp8Words(kTables, panel.scales[b] - 127), panel.block(b),
                       x + static_cast<size_t>(b * R) * kWordsPerBlock, sums);
        continue;
      }
    }
    AddScaledBlocks<Words, R, 1>(words, panel, b, x, sums);
  }
}

// Blocks [first, first + blocks), a chunk that has been decoded to `values`, against all rows.
// Meanwhile the next chunk is decoded.
template <class Words>
void ManyRowsOfChunk(const PanelView& panel, int first, int blocks, const uint8_t* values,
                     const ChunkDecoding<Words>& decoded, const uint32_t* x, int num_rows,
                     ChunkDecoding<Words>* next, float* sums) {
  constexpr int kRun = BlocksPerSum(Words::kKind);
  const size_t block_stride = static_cast<size_t>(num_rows) * kWordsPerBlock;
  const int num_sums = RowGroups(num_rows) * ((blocks + kRun - 1) / kRun);
  const int steps = (next->steps_left() + num_sums - 1) / num_sums;
  for (int b = 0, end = 0; b < blocks; b = end) {
    while (end < blocks && decoded.is_folded(end)) ++end;
    const uint8_t* data = values + static_cast<size_t>(b) * BlockBytes(WeightKind::kBf16);
    const uint32_t* rows = x + (first + b) * block_stride;
    if (end > b) {
      ForRowGroups(num_rows, [&](auto group, int r) {
        MultiplyChunk<group>(data, end - b, kRun, rows + r * kWordsPerBlock, block_stride,
                             sums + r * kPanelRows, next, steps);
      });
      continue;
    }
    const __m512 scales[1][2] = {
        {Scale<Words::kKind>(panel, first + b, 0), Scale<Words::kKind>(panel, first + b, 1)}};
    ForRowGroups(num_rows, [&](auto group, int r) {
      AddBlocks<Bf16Words, group, 1>(Bf16Words(), {data, kStepBytes}, 1, rows + r * kWordsPerBlock,
                                     0, scales, sums + r * kPanelRows);
    });
    end = b + 1;
  }
}

template <class Words>
void ManyRows(const PanelView& given, const uint32_t* x, int num_rows, float* sums) {
  alignas(64) uint8_t values[2][kChunkBlocks * BlockBytes(WeightKind::kBf16)];
  ChunkDecoding<Words> decodings[2];
  PanelView panel = given;
  panel.kind = Words::kKind;
  const auto blocks_from = [&](int b) {
    const int left = panel.num_blocks > b ? panel.num_blocks - b : 0;
    return left < kChunkBlocks ? left : kChunkBlocks;
  };
  decodings[0].Begin(panel, 0, blocks_from(0), values[0]);
  for (int b = 0, turn = 0; b < panel.num_blocks; b += kChunkBlocks, turn = 1 - turn) {
    ChunkDecoding<Words>& decoded = decodings[turn];
    ChunkDecoding<Words>& next = decodings[1 - turn];
    while (decoded.steps_left() > 0) decoded.Step();
    next.Begin(panel, b + kChunkBlocks, blocks_from(b + kChunkBlocks), values[1 - turn]);
    ManyRowsOfChunk<Words>(panel, b, blocks_from(b),
                           Words::kKind == WeightKind::kBf16 ? panel.block(b).data : values[turn],
                           decoded, x, num_rows, &next, sums);
  }
}

template <class Words>
void MultiplyKind(const PanelView& panel, const uint32_t* x, int num_rows, float* sums) {
  std::memset(sums, 0, sizeof(float) * static_cast<size_t>(num_rows) * kPanelRows);
  switch (num_rows) {
    case 1:
      return FewRows<Words, 1>(panel, x, sums);
    case 2:
      return FewRows<Words, 2>(panel, x, sums);
    case 3:
      return FewRows<Words, 3>(panel, x, sums);
    case 4:
      return FewRows<Words, 4>(panel, x, sums);
    case 5:
      return FewRows<Words, 5>(panel, x, sums);
    case 6:
      return FewRows<Words, 6>(panel, x, sums);
    case 7:
      return FewRows<Words, 7>(panel, x, sums);
    case 8:
      return FewRows<Words, 8>(panel, x, sums);
    default:
      return ManyRows<Words>(panel, x, num_rows, sums);
  }
}

void MultiplyPanel(const PanelView& panel, const uint32_t* x, int num_rows, float* sums) {
  switch (panel.kind) {
    case WeightKind::kFp8:
      return MultiplyKind<Fp8Words>(panel, x, num_rows, sums);
    case WeightKind::kFp4:
      return MultiplyKind<Fp4Words>(panel, x, num_rows, sums);
    case WeightKind::kBf16:
      return MultiplyKind<Bf16Words>(panel, x, num_rows, sums);
    case WeightKind::kF32:
      return;  // never asked for: fp32 values are not bf16
  }
}

bool PackRows(const float* x, size_t x_stride, int num_rows, int cols, size_t block_stride,
              uint32_t* packed) {
  // Word i takes its upper half from x[2i], its lower from x[2i + 1].
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 16; ++i) {
    order[2 * i] = static_cast<uint16_t>(4 * i + 3);
    order[2 * i + 1] = static_cast<uint16_t>(4 * i + 1);
  }
  const __m512i halves = _mm512_load_si512(order);
  const __m512i least = _mm512_set1_epi32((127 - kInputRange) << 23);
  const __m512i span = _mm512_set1_epi32((2 * kInputRange + 1) << 23);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __mmask16 bad = 0;
  for (int first = 0; first < num_rows; first += 8) {  // few enough to read side by side
    const int last = first + 8 < num_rows ? first + 8 : num_rows;
    uint32_t* block = packed;
    for (int k = 0; k < cols; k += kBlockK, block += block_stride) {
      const uint32_t valid = cols - k >= kBlockK ? ~0u : (1u << (cols - k)) - 1;
      for (int r = first; r < last; ++r) {
        const float* row = x + static_cast<size_t>(r) * x_stride + k;
        __m512i v[2];
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          v[half] = _mm512_castps_si512(
              _mm512_maskz_loadu_ps(static_cast<__mmask16>(valid >> (16 * half)), row + 16 * half));
          const __m512i bits = _mm512_and_si512(v[half], magnitude);
          const __mmask16 nonzero = _mm512_test_epi32_mask(bits, bits);
          bad |= _mm512_mask_cmpge_epu32_mask(nonzero, _mm512_sub_epi32(bits, least), span);
        }
        _mm512_storeu_si512(block + r * kWordsPerBlock,
                            _mm512_permutex2var_epi16(v[0], halves, v[1]));
      }
    }
  }
  return bad == 0;
}

}  // namespace

const DotKernels kDotKernels = {PackRows, MultiplyPanel};

}  // namespace emberkv::EMBERKV_ISA

#else

namespace emberkv::EMBERKV_ISA {

const DotKernels kDotKernels = {nullptr, nullptr};

}  // namespace emberkv::EMBERKV_ISA

#endif
