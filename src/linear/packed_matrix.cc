#include "linear/packed_matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>

#include "linear/dot_kernels.h"

namespace emberkv {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t At(int row, int cols, int k) {
  return static_cast<size_t>(row) * static_cast<size_t>(cols) + static_cast<size_t>(k);
}

uint8_t* WordOf(uint8_t* step, int row) { return step + row % kPanelRows * 4; }

}  // namespace

void* AllocateWeights(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const size_t size = (bytes + kCacheLine + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, size);
  if (p == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) (void)madvise(p, size, MADV_HUGEPAGE);
  return p;
}

void FreeWeights(void* p) { std::free(p); }

PackedMatrix::PackedMatrix(WeightKind kind, int rows, int cols)
    : kind_(kind), rows_(rows), cols_(cols) {
  const size_t blocks = static_cast<size_t>(num_panels()) * static_cast<size_t>(num_blocks());
  data_.resize(blocks * BlockBytes(kind));
  scales_.resize(blocks * BlockScaleBytes(kind));
}

template <class Write>
void PackedMatrix::ForEachStep(const Write& write) {
  const int columns = ValuesPerWord(kind_);
  for (int p = 0; p < num_panels(); ++p) {
    const PanelView view = panel(p);
    const int last_row = std::min(rows_, (p + 1) * kPanelRows);
    for (int b = 0; b < num_blocks(); ++b) {
      const BlockView block = view.block(b);
      uint8_t* first_step = data_.data() + (block.data - data_.data());
      const int last_k = std::min(cols_, (b + 1) * kBlockK);
      for (int row = p * kPanelRows; row < last_row; ++row) {
        uint8_t* step = first_step;
        for (int k = b * kBlockK; k < last_k; k += columns, step += block.step_stride)
          write(step, row, k);
      }
    }
  }
}

PackedMatrix PackedMatrix::FromFp8(int rows, int cols, const uint8_t* codes,
                                   const uint8_t* scales) {
  assert(cols % kBlockK == 0);
  PackedMatrix m(WeightKind::kFp8, rows, cols);
  m.suits_bf16_dot_ = true;
  m.ForEachStep([&](uint8_t* step, int row, int k) {
    const uint8_t* source = codes + At(row, cols, k);
    for (int i = 0; i < 4; ++i) step[ByteOfFp8(row % kPanelRows, i)] = source[i];
  });
  // A panel is one row of tiles, so the tile scales are already in panel order.
  std::memcpy(m.scales_.data(), scales, m.scales_.size());
  return m;
}

PackedMatrix PackedMatrix::FromFp4(int rows, int cols, const uint8_t* packed,
                                   const uint8_t* scales) {
  assert(cols % kBlockK == 0);
  PackedMatrix m(WeightKind::kFp4, rows, cols);
  m.suits_bf16_dot_ = true;
  m.ForEachStep([&](uint8_t* step, int row, int k) {
    const uint8_t* source = packed + At(row, cols, k) / 2;
    uint32_t word = 0;
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t even = source[pair] & 15u;
      const uint32_t odd = source[pair] >> 4;
      word |= (even << 16 | odd) << (4 * pair);
    }
    std::memcpy(WordOf(step, row), &word, sizeof word);
  });
  const size_t blocks = static_cast<size_t>(m.num_blocks());
  for (int row = 0; row < rows; ++row) {
    uint8_t* first =
        m.scales_.data() +
        (static_cast<size_t>(row / kPanelRows) * blocks * kPanelRows + row % kPanelRows);
    for (size_t b = 0; b < blocks; ++b)
      first[b * kPanelRows] = scales[static_cast<size_t>(row) * blocks + b];
  }
  return m;
}

PackedMatrix PackedMatrix::FromBf16(int rows, int cols, const uint8_t* bytes) {
  PackedMatrix m(WeightKind::kBf16, rows, cols);
  bool suits = true;
  m.ForEachStep([&](uint8_t* step, int row, int k) {
    uint16_t values[2] = {0, 0};
    std::memcpy(values, bytes + 2 * At(row, cols, k), k + 1 < cols ? 4 : 2);
    const uint32_t word = uint32_t{values[0]} << 16 | values[1];
    std::memcpy(WordOf(step, row), &word, sizeof word);
    suits =
        suits && IsInRange(word & 0xffff0000u, kWeightRange) && IsInRange(word << 16, kWeightRange);
  });
  m.suits_bf16_dot_ = suits;
  return m;
}

PackedMatrix PackedMatrix::FromF32(int rows, int cols, const uint8_t* bytes) {
  PackedMatrix m(WeightKind::kF32, rows, cols);
  m.ForEachStep([&](uint8_t* step, int row, int k) {
    std::memcpy(WordOf(step, row), bytes + 4 * At(row, cols, k), 4);
  });
  return m;
}

}  // namespace emberkv
