#include "linear/dot_kernels.h"

#if defined(__AVX512BF16__)

#include <cstring>

#include "base/simd.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr int kAheadBytes = 3072;  // how far ahead lines are fetched where that is done by hand

// bf16 bits of the magnitudes of e4m3 times a power of two, lower and upper bytes apart, and of e2m1.
struct E4m3Bytes {
  uint8_t low[128], high[128];
};
struct Tables {
  alignas(64) E4m3Bytes e4m3[2 * kFoldRange + 1];  // [exponent + kFoldRange]
  alignas(64) uint16_t e2m1[32];
};

constexpr uint16_t Bf16OfE4m3(int code) {
  int exponent = code >> 3, mantissa = code & 7;
  if (code == 0x7f) return 0x7fc0;
  if (exponent == 0) {  // a multiple of 2^-9
    if (mantissa == 0) return 0;
    for (exponent = 1; mantissa < 8; mantissa *= 2) --exponent;
    mantissa -= 8;
  }
  return static_cast<uint16_t>((exponent + 120) << 7 | mantissa << 4);
}

constexpr Tables MakeTables() {
  Tables t = {};
  for (int code = 0; code < 128; ++code) {
    for (int exponent = -kFoldRange; exponent <= kFoldRange; ++exponent) {
      const int bits = Bf16OfE4m3(code) + (code == 0 ? 0 : exponent * 128);
      t.e4m3[exponent + kFoldRange].low[code] = static_cast<uint8_t>(bits & 255);
      t.e4m3[exponent + kFoldRange].high[code] = static_cast<uint8_t>(bits >> 8 & 255);
    }
  }
  constexpr uint16_t kMagnitudes[8] = {0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0};
  for (int i = 0; i < 32; ++i) {  // twice: only four of the five index bits that count are a code
    t.e2m1[i] = static_cast<uint16_t>(kMagnitudes[i % 8] | (i % 16 / 8) << 15);
  }
  return t;
}

constexpr Tables kTables = MakeTables();

// A scale that may be put into weights (dot_kernels.h).
EMBERKV_INLINE bool CanFold(uint8_t code) {
  return code >= 127 - kFoldRange && code <= 127 + kFoldRange;
}

// bf16 values times 2^exponent, zeros left alone; what is added to the bits is the exponent in its
// place.
EMBERKV_INLINE __m512i Scaled(__m512i values, __m512i exponent) {
  const __mmask32 nonzero = _mm512_test_epi16_mask(values, _mm512_set1_epi16(0x7fff));
  return _mm512_mask_add_epi16(values, nonzero, values, exponent);
}

// The value, but the compiler no longer knows what it is made of.
EMBERKV_INLINE __m512i Opaque(__m512i value) {
  asm("" : "+v"(value));
  return value;
}

// How the bytes of 16 rows become registers of bf16 pairs, pairs of ascending k.
struct Fp8Words {
  static constexpr WeightKind kKind = WeightKind::kFp8;
  static constexpr int kPairs = 2;
  __m512i low[2], high[2];  // lower and upper bytes of the 128 magnitudes

  // The values times 2^exponent, which is within +-kFoldRange.
  explicit Fp8Words(int exponent = 0) {
    const E4m3Bytes& bytes = kTables.e4m3[exponent + kFoldRange];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      low[i] = _mm512_load_si512(bytes.low + 64 * i);
      high[i] = _mm512_load_si512(bytes.high + 64 * i);
    }
  }
  EMBERKV_INLINE void Decode(const Fp8Words& t, const uint8_t* p, __m512i* pairs) {
    const __m512i codes = Opaque(_mm512_load_si512(p));  // else g++ loads them three times
    const __m512i low = _mm512_permutex2var_epi8(t.low[0], codes, t.low[1]);
    __m512i high = _mm512_permutex2var_epi8(t.high[0], codes, t.high[1]);
    // Made one operation of three inputs, the two would take time from the dots on a Zen 4.
    const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
    high = _mm512_or_si512(high, Opaque(sign));
    pairs[0] = _mm512_unpacklo_epi8(low, high);
    pairs[1] = _mm512_unpackhi_epi8(low, high);
  }
};

struct Fp4Words {
  static constexpr WeightKind kKind = WeightKind::kFp4;
  static constexpr int kPairs = 4;
  __m512i values = _mm512_load_si512(kTables.e2m1);

  EMBERKV_INLINE void Decode(const Fp4Words& t, const uint8_t* p, __m512i* pairs) {
    const __m512i codes = _mm512_load_si512(p);
    const __m512i next =
        _mm512_loadu_si512(p + 1);  // shifts by 8, and the ports that shift are busy
    pairs[0] = _mm512_permutexvar_epi16(codes, t.values);
    pairs[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), t.values);
    pairs[2] = _mm512_permutexvar_epi16(next, t.values);
    pairs[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(next, 4), t.values);
  }
};

struct Bf16Words {
  static constexpr WeightKind kKind = WeightKind::kBf16;
  static constexpr int kPairs = 1;
  EMBERKV_INLINE void Decode(const Bf16Words&, const uint8_t* p, __m512i* pairs) {
    pairs[0] = _mm512_load_si512(p);
  }
};

EMBERKV_INLINE __m512i ScaleCodes(const PanelView& panel, int b, int half) {
  return _mm512_cvtepu8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel.scales + kPanelRows * b + 16 * half)));
}

// The scales of block b for rows 16 * half and on.
template <WeightKind kKind>
EMBERKV_INLINE __m512 Scale(const PanelView& panel, int b, int half) {
  if constexpr (kKind == WeightKind::kBf16) return _mm512_set1_ps(1.0f);
  const __m512i codes =
      kKind == WeightKind::kFp8 ? _mm512_set1_epi32(panel.scales[b]) : ScaleCodes(panel, b, half);
  // Code 0 is the subnormal 2^-127.
  return _mm512_castsi512_ps(
      _mm512_max_epu32(_mm512_slli_epi32(codes, 23), _mm512_set1_epi32(0x00400000)));
}

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
  _mm_prefetch(p, _MM_HINT_T0);
  _mm_prefetch(p + kStepBytes / 2, _MM_HINT_T0);
}

EMBERKV_INLINE __m512 AddPair(__m512 acc, __m512i input, __m512i weights) {
  return _mm512_dpbf16_ps(acc, (__m512bh)input, (__m512bh)weights);
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
        if constexpr (kFetchesAhead) FetchStep(p + kAheadBytes);
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

// The same for one block of FP8, whose scale is in `words`, and so many rows that the dots take most
// of the time: each step is decoded amid the dots of the step before, on pipes that these leave free.
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
      FetchStep(data + kAheadBytes);
      data += step + 1 < kSteps ? block.step_stride : 0;  // the last is decoded twice
#pragma GCC unroll 2
      for (int i = 0; i < Fp8Words::kPairs; ++i) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          if (r == R / 2) {
            __m512i* next = pairs[1 - turn][i];
            Fp8Words::Decode(words, data + i * (kStepBytes / 2), next);
            asm volatile("" : "+v"(next[0]), "+v"(next[1]));  // here, not earlier
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
        AddFp8Block<R>(Fp8Words(panel.scales[b] - 127), panel.block(b),
                       x + static_cast<size_t>(b * R) * kWordsPerBlock, sums);
        continue;
      }
    }
    AddScaledBlocks<Words, R, 1>(words, panel, b, x, sums);
  }
}

// Many rows: a block is decoded once, with its scales where they can be folded, and multiplied with
// all of them. Returns whether scales are still to be applied.
template <class Words>
bool DecodeBlock(const Words& words, const PanelView& panel, int b, uint8_t* out) {
  constexpr int kSteps = kWordsPerBlock / Words::kPairs;
  const BlockView block = panel.block(b);
  bool folds = false;
  Words scaled = words;
  __m512i exponents[2] = {};
  if constexpr (Words::kKind == WeightKind::kFp8) {
    folds = CanFold(panel.scales[b]);
    if (folds) scaled = Words(panel.scales[b] - 127);
  } else {
    folds = true;
    for (int i = 0; i < kPanelRows; ++i) folds = folds && CanFold(panel.scales[kPanelRows * b + i]);
    for (int half = 0; folds && half < 2; ++half) {
      const __m512i word = _mm512_sub_epi32(ScaleCodes(panel, b, half), _mm512_set1_epi32(127));
      exponents[half] =
          _mm512_or_si512(_mm512_slli_epi32(word, 23),
                          _mm512_and_si512(_mm512_slli_epi32(word, 7), _mm512_set1_epi32(0xffff)));
    }
  }
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m512i pairs[Words::kPairs];
      Words::Decode(scaled, block.data + step * block.step_stride + half * kStepBytes / 2, pairs);
#pragma GCC unroll 4
      for (int i = 0; i < Words::kPairs; ++i) {
        if constexpr (Words::kKind == WeightKind::kFp4)
          pairs[i] = Scaled(pairs[i], exponents[half]);
        _mm512_store_si512(out + (step * Words::kPairs + i) * kStepBytes + half * kStepBytes / 2,
                           pairs[i]);
      }
    }
  }
  return !folds;
}

// The lines that are read a group of blocks, or a run, later: by then they have come from memory.
EMBERKV_INLINE void FetchGroupAfter(const PanelView& panel, int b) {
  const BlockView block = panel.block(b);
  const int blocks = BlocksPerSum(panel.kind);
  const size_t distance =
      static_cast<size_t>(BlocksTogether(panel.kind) * blocks) * BlockBytes(panel.kind);
  for (int step = 0; step < blocks * kBlockK / ValuesPerWord(panel.kind); ++step) {
    const uint8_t* p = block.data + step * block.step_stride + distance;
    _mm_prefetch(p, _MM_HINT_T0);
    _mm_prefetch(p + kStepBytes / 2, _MM_HINT_T0);
  }
}

// A block in bf16, decoded or as stored, or a run of them, against R rows.
template <int R>
void RowsOfBf16(const BlockView& block, int run_blocks, const uint32_t* x, size_t block_stride,
                const __m512 (*scales)[2], float* sums) {
  if (scales != nullptr) {
    AddBlocks<Bf16Words, R, 1>(Bf16Words(), block, 1, x, 0, scales, sums);
  } else {
    AddBlocks<Bf16Words, R, 1>(Bf16Words(), block, run_blocks, x, block_stride, nullptr, sums);
  }
}

template <class Words>
void ManyRows(const PanelView& given, const uint32_t* x, int num_rows, float* sums) {
  static constexpr decltype(&RowsOfBf16<1>) kTail[] = {nullptr,       RowsOfBf16<1>, RowsOfBf16<2>,
                                                       RowsOfBf16<3>, RowsOfBf16<4>, RowsOfBf16<5>,
                                                       RowsOfBf16<6>, RowsOfBf16<7>};
  alignas(64) uint8_t decoded[BlockBytes(WeightKind::kBf16)];
  PanelView panel = given;
  panel.kind = Words::kKind;
  const Words words;
  const size_t block_stride = static_cast<size_t>(num_rows) * kWordsPerBlock;
  for (int b = 0; b < panel.num_blocks; b += BlocksPerSum(Words::kKind)) {
    FetchGroupAfter(panel, b);
    BlockView block = {decoded, kStepBytes};
    __m512 scale[1][2];
    const __m512(*scales)[2] = nullptr;
    if constexpr (Words::kKind == WeightKind::kBf16) {
      block = panel.block(b);
    } else if (DecodeBlock(words, panel, b, decoded)) {
      scale[0][0] = Scale<Words::kKind>(panel, b, 0);
      scale[0][1] = Scale<Words::kKind>(panel, b, 1);
      scales = scale;
    }
    const int run = RunBlocks(panel, b);
    const uint32_t* rows = x + b * block_stride;
    int r = 0;
    for (; r + 8 <= num_rows; r += 8) {
      RowsOfBf16<8>(block, run, rows + r * kWordsPerBlock, block_stride, scales,
                    sums + r * kPanelRows);
    }
    if (r < num_rows) {
      kTail[num_rows - r](block, run, rows + r * kWordsPerBlock, block_stride, scales,
                          sums + r * kPanelRows);
    }
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
