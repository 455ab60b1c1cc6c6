#include "linear/panel_kernels.h"

#include "linear/panel_product.h"

namespace emberkv::EMBERKV_ISA {
namespace {

// The words of 16 rows.
EMBERKV_INLINE U32x16 LoadWords(const uint8_t* p) {
  U32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// The words of 16 rows of FP8, each row's 4 codes put together, the lowest k in the lowest byte.
EMBERKV_INLINE U32x16 LoadFp8Words(const uint8_t* p) {
  uint8_t order[16];  // of every 16 bytes
  for (int row = 0; row < 4; ++row) {
    for (int k = 0; k < 4; ++k) order[4 * row + k] = static_cast<uint8_t>(ByteOfFp8(row, k));
  }
  uint8_t bytes[64];
#if defined(__AVX2__)
  const __m128i shuffle = _mm_loadu_si128(reinterpret_cast<const __m128i*>(order));
  for (int i = 0; i < 64; i += 16) {
    const __m128i four_rows = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i), _mm_shuffle_epi8(four_rows, shuffle));
  }
#else
  for (int i = 0; i < 64; ++i) bytes[i] = p[i / 16 * 16 + order[i % 16]];
#endif
  return LoadWords(bytes);
}

EMBERKV_INLINE F32x16 E4m3Values(U32x16 codes) {
  const U32x16 magnitude = codes & 0x7fu;
  const F32x16 value = Select((I32x16)(magnitude == 0x7fu), AsFloat(SplatU(0x7fc00000u)),
                              AsFloat(magnitude << 20) * Splat(0x1p120f));
  return AsFloat(AsBits(value) | ((codes & 0x80u) << 24));
}

EMBERKV_INLINE F32x16 E2m1Values(U32x16 codes) {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
#if defined(__AVX512F__)
  const __m512 table = _mm512_broadcast_f32x8(_mm256_loadu_ps(kMagnitudes));
  const F32x16 magnitude = (F32x16)_mm512_permutexvar_ps((__m512i)(codes & 7u), table);
#elif defined(__AVX2__)
  const __m256 table =
      _mm256_loadu_ps(kMagnitudes);  // the permutation looks at the lowest three bits only
  __m256i halves[2];
  std::memcpy(halves, &codes, sizeof codes);
  const F32x16 magnitude = Join((F32x8)_mm256_permutevar8x32_ps(table, halves[0]),
                                (F32x8)_mm256_permutevar8x32_ps(table, halves[1]));
#else
  float lanes[kLanes];
  uint32_t index[kLanes];
  std::memcpy(index, &codes, sizeof index);
  for (int i = 0; i < kLanes; ++i) lanes[i] = kMagnitudes[index[i] & 7u];
  const F32x16 magnitude = Load(lanes);
#endif
  return AsFloat(AsBits(magnitude) | ((codes & 8u) << 28));
}

// out + 16 * half of column k, for each half of the panel's rows; a step is `columns` columns.
template <class DecodeColumn>
EMBERKV_INLINE void DecodeSteps(const BlockView& block, U32x16 (*load)(const uint8_t*), int columns,
                                float* out, const DecodeColumn& decode_column) {
  const uint8_t* step = block.data;
  for (int k = 0; k < kBlockK; k += columns, step += block.step_stride) {
    for (int half = 0; half < 2; ++half) {
      const U32x16 words = load(step + kStepBytes / 2 * half);
      for (int i = 0; i < columns; ++i)
        Store(decode_column(words, i), out + 32 * (k + i) + 16 * half);
    }
  }
}

void DecodeFp8(const BlockView& block, float* out) {
  DecodeSteps(block, LoadFp8Words, 4, out,
              [](U32x16 words, int i) { return E4m3Values((words >> (8 * i)) & 0xffu); });
}

void DecodeFp4(const BlockView& block, float* out) {
  DecodeSteps(block, LoadWords, 8, out, [](U32x16 words, int i) {
    return E2m1Values((words >> (4 * (i / 2) + (i % 2 == 0 ? 16 : 0))) & 15u);
  });
}

void DecodeBf16(const BlockView& block, float* out) {
  DecodeSteps(block, LoadWords, 2, out, [](U32x16 words, int i) {
    return AsFloat(i == 0 ? words & 0xffff0000u : words << 16);
  });
}

void MultiplyRun(const float* w, int depth, const float* x, size_t x_stride, int num_rows,
                 float* run_sums) {
  MultiplyAllRows(w, depth, x, x_stride, num_rows, run_sums);
}

void RoundValues(float* values, int n) {
  for (int i = 0; i < n; i += kLanes) Store(RoundBf16(Load(values + i)), values + i);
}

}  // namespace

const PanelKernels kPanelKernels = {DecodeFp8, DecodeFp4, DecodeBf16, MultiplyRun, RoundValues};

}  // namespace emberkv::EMBERKV_ISA
