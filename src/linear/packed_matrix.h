// A weight matrix [rows, cols] in the layout the products stream: panels of 32 rows, K-major.
//
// The values keep their stored precision (FP8, FP4, bf16 or fp32) and are decoded next to their
// use. Immutable after construction and owned by value; any thread may read. Rows are padded with
// zeros to a whole panel, columns to a whole block of kBlockK.
//
// A block is a sequence of steps, each one 32-bit word of every row:
//   kFp8    a word is 4 codes, but the bytes of 4 neighbouring rows mix (ByteOfFp8): columns k + 1
//           and k of each row in turn, then k + 3 and k + 2
//   kFp4    a word is 8 codes: even k in the upper half, odd k in the lower, the lowest k lowest
//   kBf16   a word is 2 values: even k in the upper half, odd k in the lower
//   kF32    a word is 1 value
// The upper half comes first because VDPBF16PS adds it first (docs/determinism.md).
//
// Blocks lie in groups of BlocksTogether(kind) that take turns, step by step: one row's sums over
// several blocks then grow side by side while memory is read in order. What is left at the end of a
// panel lies block after block.
//
// Scales (e8m0) lie apart: kFp8 [panel][block], one per 32x32 tile; kFp4 [panel][block][32].
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace emberkv {

inline constexpr int kPanelRows = 32;
inline constexpr int kBlockK = 32;  // columns, which share a scale where there are scales

// Kernels must not share functions across instruction sets: the linker would pick one of them.
#define EMBERKV_ALWAYS_INLINE [[gnu::always_inline]]

enum class WeightKind : uint8_t { kFp8, kFp4, kBf16, kF32 };

EMBERKV_ALWAYS_INLINE constexpr int ValuesPerWord(WeightKind kind) {
  switch (kind) {
    case WeightKind::kFp8:
      return 4;
    case WeightKind::kFp4:
      return 8;
    case WeightKind::kBf16:
      return 2;
    case WeightKind::kF32:
      break;
  }
  return 1;
}
// Neighbouring blocks whose products make one partial sum (linear/multiply.h).
EMBERKV_ALWAYS_INLINE constexpr int BlocksPerSum(WeightKind kind) {
  return kind == WeightKind::kFp8 || kind == WeightKind::kFp4 ? 1 : 4;
}
// In the layout of a panel, see above. A block of FP4 is half as large as one of FP8.
EMBERKV_ALWAYS_INLINE constexpr int BlocksTogether(WeightKind kind) {
  return kind == WeightKind::kFp4 ? 4 : kind == WeightKind::kFp8 ? 2 : 1;
}
EMBERKV_ALWAYS_INLINE constexpr size_t BlockBytes(WeightKind kind) {
  return size_t{kPanelRows} * kBlockK * 4 / static_cast<size_t>(ValuesPerWord(kind));
}
EMBERKV_ALWAYS_INLINE constexpr size_t BlockScaleBytes(WeightKind kind) {
  return kind == WeightKind::kFp8 ? 1 : kind == WeightKind::kFp4 ? kPanelRows : 0;
}

// The byte of a step that holds column k of a row: what interleaving bytes of 16-byte lanes makes
// pairs of.
EMBERKV_ALWAYS_INLINE constexpr size_t ByteOfFp8(int row, int k) {
  return static_cast<size_t>(row / 4 * 16 + k % 4 / 2 * 8 + row % 4 * 2 + (k % 2 == 0 ? 1 : 0));
}

inline constexpr size_t kStepBytes = size_t{kPanelRows} * 4;

// Where the steps of a block lie.
struct BlockView {
  const uint8_t* data;
  size_t step_stride;  // bytes
};

// One panel, as the kernels read it. `data` is aligned to a cache line.
struct PanelView {
  WeightKind kind;
  const uint8_t* data;
  const uint8_t* scales;
  int num_blocks;

  EMBERKV_ALWAYS_INLINE BlockView block(int b) const {
    const int together = BlocksTogether(kind);
    const int first = b / together * together;
    const uint8_t* group = data + static_cast<size_t>(first) * BlockBytes(kind);
    if (first + together > num_blocks)
      return {group + static_cast<size_t>(b - first) * BlockBytes(kind), kStepBytes};
    return {group + static_cast<size_t>(b - first) * kStepBytes,
            static_cast<size_t>(together) * kStepBytes};
  }
};

// Memory for weights: whole cache lines, huge pages where the system grants them for the asking,
// and one line more than asked for, because kernels may load across the end.
void* AllocateWeights(size_t bytes);
void FreeWeights(void* p);
template <class T>
struct WeightAllocator {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(AllocateWeights(n * sizeof(T))); }
  void deallocate(T* p, size_t) { FreeWeights(p); }
  bool operator==(const WeightAllocator&) const { return true; }
};

class PackedMatrix {
 public:
  PackedMatrix() = default;

  // No code and no scale may be NaN: the loader refuses them.
  // codes [rows][cols] e4m3, scales [ceil(rows/32)][ceil(cols/32)] e8m0 (numerics 2); cols % 32 is
  // 0.
  static PackedMatrix FromFp8(int rows, int cols, const uint8_t* codes, const uint8_t* scales);
  // packed [rows][cols/2] e2m1, low nibble even; scales [rows][cols/32] e8m0. cols % 32 == 0.
  static PackedMatrix FromFp4(int rows, int cols, const uint8_t* packed, const uint8_t* scales);
  // Little-endian values [rows][cols], any alignment.
  static PackedMatrix FromBf16(int rows, int cols, const uint8_t* bytes);
  static PackedMatrix FromF32(int rows, int cols, const uint8_t* bytes);

  WeightKind kind() const { return kind_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  int num_panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  int num_blocks() const { return (cols_ + kBlockK - 1) / kBlockK; }
  size_t bytes() const { return data_.size() + scales_.size(); }
  // Whether the values, unscaled, are such that VDPBF16PS gives the bits of fp32 arithmetic with
  // inputs in its range (linear/dot_kernels.h). True of all FP8 and FP4, and of bf16 unless values
  // are extreme.
  bool suits_bf16_dot() const { return suits_bf16_dot_; }

  PanelView panel(int i) const {
    const size_t blocks = static_cast<size_t>(i) * static_cast<size_t>(num_blocks());
    return {kind_, data_.data() + blocks * BlockBytes(kind_),
            scales_.data() + blocks * BlockScaleBytes(kind_), num_blocks()};
  }

 private:
  PackedMatrix(WeightKind kind, int rows, int cols);
  // Calls write(step, row, k) for every row and every step of its columns; k is the first of the
  // step's columns.
  template <class Write>
  void ForEachStep(const Write& write);

  WeightKind kind_ = WeightKind::kF32;
  int rows_ = 0;
  int cols_ = 0;
  bool suits_bf16_dot_ = false;
  std::vector<uint8_t, WeightAllocator<uint8_t>> data_;
  std::vector<uint8_t> scales_;
};

}  // namespace emberkv
