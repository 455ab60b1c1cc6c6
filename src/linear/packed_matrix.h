// A weight matrix [rows, cols] in the layout the products stream: panels of 32 rows, K-major.
//
// The bytes keep their stored precision (FP8, FP4, bf16 or fp32) and are decoded next to their use.
// Immutable after construction and owned by value; any thread may read. Rows are padded with zeros to
// a whole panel.
//
//   kFp8    [panel][cols][32] codes, [panel][cols/32] e8m0: one scale per 32x32 tile
//   kFp4    [panel][cols/2][32] bytes (even k in the low nibble), [panel][cols/32][32] e8m0
//   kBf16   [panel][cols][32] 16-bit values
//   kF32    [panel][cols][32] floats
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emberkv {

inline constexpr int kPanelRows = 32;

enum class WeightKind : uint8_t { kFp8, kFp4, kBf16, kF32 };

class PackedMatrix {
 public:
  PackedMatrix() = default;

  // codes [rows][cols] e4m3, scales [ceil(rows/32)][ceil(cols/32)] e8m0 (numerics 2). cols % 32 == 0.
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
  size_t bytes() const { return data_.size() + scales_.size(); }

  const uint8_t* panel_data(int panel) const { return data_.data() + panel * panel_data_bytes_; }
  const uint8_t* panel_scales(int panel) const {
    return scales_.data() + panel * panel_scale_bytes_;
  }

 private:
  PackedMatrix(WeightKind kind, int rows, int cols);
  static PackedMatrix FromValues(WeightKind kind, int rows, int cols, const uint8_t* bytes,
                                 size_t value_bytes);

  WeightKind kind_ = WeightKind::kF32;
  int rows_ = 0;
  int cols_ = 0;
  size_t panel_data_bytes_ = 0;
  size_t panel_scale_bytes_ = 0;
  std::vector<uint8_t> data_;
  std::vector<uint8_t> scales_;
};

}  // namespace emberkv
