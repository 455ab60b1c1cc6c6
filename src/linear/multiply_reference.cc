#include <algorithm>
#include <cstring>

#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "linear/multiply.h"

namespace emberkv {
namespace {

float UnscaledWeight(const PanelView& panel, int lane, int k) {
  const BlockView block = panel.block(k / kBlockK);
  const uint8_t* step =
      block.data + static_cast<size_t>(k % kBlockK / ValuesPerWord(panel.kind)) * block.step_stride;
  if (panel.kind == WeightKind::kFp8) return E4m3ToFloat(step[ByteOfFp8(lane, k)]);
  uint32_t word;
  std::memcpy(&word, step + lane * 4, sizeof word);
  const int half_shift = k % 2 == 0 ? 16 : 0;
  if (panel.kind == WeightKind::kFp4) {
    return E2m1ToFloat(static_cast<uint8_t>(word >> (half_shift + k % 8 / 2 * 4) & 15u));
  }
  if (panel.kind == WeightKind::kBf16)
    return Bf16ToFloat(static_cast<uint16_t>(word >> half_shift));
  return std::bit_cast<float>(word);
}

float ScaleOf(const PanelView& panel, int lane, int block) {
  switch (panel.kind) {
    case WeightKind::kFp8:
      return E8m0ToFloat(panel.scales[block]);
    case WeightKind::kFp4:
      return E8m0ToFloat(panel.scales[block * kPanelRows + lane]);
    default:
      return 1.0f;
  }
}

}  // namespace

void MultiplyReference(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows,
                       float* y, size_t y_stride, Rounding rounding) {
  for (int r = 0; r < num_rows; ++r) {
    for (int i = 0; i < w.rows(); ++i) {
      const PanelView panel = w.panel(i / kPanelRows);
      const int lane = i % kPanelRows;
      float sum = 0.0f;
      const int run_blocks = BlocksPerSum(w.kind());
      for (int b = 0; b < panel.num_blocks; b += run_blocks) {
        float run = 0.0f;
        for (int k = b * kBlockK; k < std::min(w.cols(), (b + run_blocks) * kBlockK); ++k) {
          run += x[static_cast<size_t>(r) * x_stride + static_cast<size_t>(k)] *
                 UnscaledWeight(panel, lane, k);
        }
        sum += ScaleOf(panel, lane, b) * run;
      }
      y[static_cast<size_t>(r) * y_stride + static_cast<size_t>(i)] =
          rounding == Rounding::kBf16 ? RoundToBf16(sum) : sum;
    }
  }
}

}  // namespace emberkv
