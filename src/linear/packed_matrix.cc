#include "linear/packed_matrix.h"

#include <cassert>
#include <cstring>

namespace emberkv {
namespace {

constexpr int kScaleGroup = 32;

}  // namespace

PackedMatrix::PackedMatrix(WeightKind kind, int rows, int cols)
    : kind_(kind), rows_(rows), cols_(cols) {
  const size_t k = static_cast<size_t>(cols);
  switch (kind) {
    case WeightKind::kFp8:
      panel_data_bytes_ = k * kPanelRows;
      panel_scale_bytes_ = k / kScaleGroup;
      break;
    case WeightKind::kFp4:
      panel_data_bytes_ = k / 2 * kPanelRows;
      panel_scale_bytes_ = k / kScaleGroup * kPanelRows;
      break;
    case WeightKind::kBf16: panel_data_bytes_ = k * kPanelRows * 2; break;
    case WeightKind::kF32: panel_data_bytes_ = k * kPanelRows * 4; break;
  }
  data_.resize(panel_data_bytes_ * static_cast<size_t>(num_panels()));
  scales_.resize(panel_scale_bytes_ * static_cast<size_t>(num_panels()));
}

PackedMatrix PackedMatrix::FromFp8(int rows, int cols, const uint8_t* codes,
                                   const uint8_t* scales) {
  assert(cols % kScaleGroup == 0);
  PackedMatrix m(WeightKind::kFp8, rows, cols);
  const size_t k = static_cast<size_t>(cols);
  for (int row = 0; row < rows; ++row) {
    uint8_t* panel = m.data_.data() + row / kPanelRows * m.panel_data_bytes_ + row % kPanelRows;
    const uint8_t* source = codes + row * k;
    for (size_t c = 0; c < k; ++c) panel[c * kPanelRows] = source[c];
  }
  // A panel is one row of tiles, so the tile scales are already in panel order.
  std::memcpy(m.scales_.data(), scales, m.scales_.size());
  return m;
}

PackedMatrix PackedMatrix::FromFp4(int rows, int cols, const uint8_t* packed,
                                   const uint8_t* scales) {
  assert(cols % kScaleGroup == 0);
  PackedMatrix m(WeightKind::kFp4, rows, cols);
  const size_t pairs = static_cast<size_t>(cols) / 2;
  const size_t groups = static_cast<size_t>(cols) / kScaleGroup;
  for (int row = 0; row < rows; ++row) {
    const size_t panel = static_cast<size_t>(row / kPanelRows);
    const size_t lane = static_cast<size_t>(row % kPanelRows);
    uint8_t* data = m.data_.data() + panel * m.panel_data_bytes_ + lane;
    for (size_t p = 0; p < pairs; ++p) data[p * kPanelRows] = packed[row * pairs + p];
    uint8_t* scale = m.scales_.data() + panel * m.panel_scale_bytes_ + lane;
    for (size_t g = 0; g < groups; ++g) scale[g * kPanelRows] = scales[row * groups + g];
  }
  return m;
}

PackedMatrix PackedMatrix::FromValues(WeightKind kind, int rows, int cols, const uint8_t* bytes,
                                      size_t value_bytes) {
  PackedMatrix m(kind, rows, cols);
  const size_t k = static_cast<size_t>(cols);
  for (int row = 0; row < rows; ++row) {
    uint8_t* panel =
        m.data_.data() + row / kPanelRows * m.panel_data_bytes_ + row % kPanelRows * value_bytes;
    for (size_t c = 0; c < k; ++c) {
      std::memcpy(panel + c * kPanelRows * value_bytes, bytes + (row * k + c) * value_bytes, value_bytes);
    }
  }
  return m;
}

PackedMatrix PackedMatrix::FromBf16(int rows, int cols, const uint8_t* bytes) {
  return FromValues(WeightKind::kBf16, rows, cols, bytes, 2);
}

PackedMatrix PackedMatrix::FromF32(int rows, int cols, const uint8_t* bytes) {
  return FromValues(WeightKind::kF32, rows, cols, bytes, 4);
}

}  // namespace emberkv
