#include "linear/multiply.h"

#include <algorithm>
#include <cstring>

#include "base/isa.h"
#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "linear/panel_kernels.h"

namespace emberkv {
namespace {

constexpr int kTileRows = 128;                   // input rows per decoded panel block
constexpr int64_t kMinParallelProducts = 1 << 17;  // below this a wake-up costs more than it saves

struct Kernels {
  PanelKernels panel;
  StrictAccumulate strict;
};

Kernels ActiveKernels() {
  return {EMBERKV_FOR_ACTIVE_ISA(kPanelKernels), EMBERKV_FOR_ACTIVE_ISA(kStrictAccumulate)};
}

// One panel against up to kTileRows input rows.
void PanelTile(const Kernels& kernels, const PackedMatrix& w, int panel, const float* x,
               size_t x_stride, int num_rows, float* y, size_t y_stride, Rounding rounding) {
  alignas(64) float block[kBlockK * kPanelRows];
  alignas(64) float sums[kTileRows * kPanelRows];
  std::memset(sums, 0, sizeof(float) * static_cast<size_t>(num_rows) * kPanelRows);
  const uint8_t* data = w.panel_data(panel);
  const uint8_t* scales = w.panel_scales(panel);
  for (int k0 = 0; k0 < w.cols(); k0 += kBlockK) {
    const int depth = std::min(kBlockK, w.cols() - k0);
    switch (w.kind()) {
      case WeightKind::kFp8: kernels.panel.decode_fp8(data, scales, k0, depth, block); break;
      case WeightKind::kFp4: kernels.panel.decode_fp4(data, scales, k0, depth, block); break;
      case WeightKind::kBf16: kernels.panel.decode_bf16(data, k0, depth, block); break;
      case WeightKind::kF32:
        std::memcpy(block, data + static_cast<size_t>(k0) * kPanelRows * 4,
                    sizeof(float) * static_cast<size_t>(depth) * kPanelRows);
        kernels.strict(block, depth, x + k0, x_stride, num_rows, sums);
        continue;
    }
    kernels.panel.accumulate(block, depth, x + k0, x_stride, num_rows, sums);
  }
  if (rounding == Rounding::kBf16) kernels.panel.round_bf16(sums, num_rows * kPanelRows);
  const int first = panel * kPanelRows;
  const int width = std::min(kPanelRows, w.rows() - first);
  for (int r = 0; r < num_rows; ++r) {
    std::copy_n(sums + r * kPanelRows, width, y + static_cast<size_t>(r) * y_stride + first);
  }
}

void RunTasks(const Kernels& kernels, const PackedMatrix& w, const float* x, size_t x_stride,
              int num_rows, float* y, size_t y_stride, Rounding rounding, int64_t begin,
              int64_t end) {
  const int tiles = (num_rows + kTileRows - 1) / kTileRows;
  for (int64_t task = begin; task < end; ++task) {
    const int row = static_cast<int>(task % tiles) * kTileRows;
    PanelTile(kernels, w, static_cast<int>(task / tiles), x + row * x_stride, x_stride,
              std::min(kTileRows, num_rows - row), y + row * y_stride, y_stride, rounding);
  }
}

float WeightAt(const PackedMatrix& w, int row, int k) {
  const uint8_t* data = w.panel_data(row / kPanelRows);
  const uint8_t* scales = w.panel_scales(row / kPanelRows);
  const size_t lane = static_cast<size_t>(row % kPanelRows);
  const size_t at = static_cast<size_t>(k) * kPanelRows + lane;
  switch (w.kind()) {
    case WeightKind::kFp8: return E4m3ToFloat(data[at]) * E8m0ToFloat(scales[k / 32]);
    case WeightKind::kFp4: {
      const uint8_t pair = data[static_cast<size_t>(k / 2) * kPanelRows + lane];
      const uint8_t code = k % 2 == 0 ? pair & 15 : pair >> 4;
      return E2m1ToFloat(code) * E8m0ToFloat(scales[static_cast<size_t>(k / 32) * kPanelRows + lane]);
    }
    case WeightKind::kBf16: {
      uint16_t bits;
      std::memcpy(&bits, data + at * 2, sizeof bits);
      return Bf16ToFloat(bits);
    }
    case WeightKind::kF32: {
      float value;
      std::memcpy(&value, data + at * 4, sizeof value);
      return value;
    }
  }
  return 0.0f;
}

}  // namespace

void Multiply(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
              size_t y_stride, Rounding rounding, ThreadPool& pool) {
  const Kernels kernels = ActiveKernels();
  const int64_t tiles = (num_rows + kTileRows - 1) / kTileRows;
  const int64_t tasks = tiles * w.num_panels();
  const int64_t products_per_task =
      int64_t{std::min(num_rows, kTileRows)} * kPanelRows * w.cols();
  const int64_t grain = std::max<int64_t>(1, kMinParallelProducts / std::max<int64_t>(1, products_per_task));
  pool.ParallelFor(tasks, grain, [&](int64_t begin, int64_t end, int) {
    RunTasks(kernels, w, x, x_stride, num_rows, y, y_stride, rounding, begin, end);
  });
}

void MultiplyHere(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
                  size_t y_stride, Rounding rounding) {
  const int64_t tiles = (num_rows + kTileRows - 1) / kTileRows;
  RunTasks(ActiveKernels(), w, x, x_stride, num_rows, y, y_stride, rounding, 0,
           tiles * w.num_panels());
}

void MultiplyReference(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
                       size_t y_stride, Rounding rounding) {
  for (int r = 0; r < num_rows; ++r) {
    for (int i = 0; i < w.rows(); ++i) {
      float sum = 0.0f;
      for (int k0 = 0; k0 < w.cols(); k0 += kBlockK) {
        float block = 0.0f;
        for (int k = k0; k < std::min(w.cols(), k0 + kBlockK); ++k) {
          block += x[static_cast<size_t>(r) * x_stride + k] * WeightAt(w, i, k);
        }
        sum += block;
      }
      y[static_cast<size_t>(r) * y_stride + i] = rounding == Rounding::kBf16 ? RoundToBf16(sum) : sum;
    }
  }
}

}  // namespace emberkv
