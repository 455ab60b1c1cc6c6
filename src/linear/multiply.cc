#include "linear/multiply.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/isa.h"
#include "linear/dot_kernels.h"
#include "linear/panel_kernels.h"

namespace emberkv {
namespace {

constexpr int kTileRows = 128;                     // input rows that share one decoding of a block
constexpr int64_t kMinParallelProducts = 1 << 17;  // below this a wake-up costs more than it saves
constexpr int kFewRows = 8;  // the more rows, the less of the time goes into writing the output
// Long shares, because memory is read fastest in order; several a thread, for one that is held up.
constexpr int64_t kSharesOfThread = 4;
constexpr int kMaxRun =
    kBlockK * std::max(BlocksPerSum(WeightKind::kFp8), BlocksPerSum(WeightKind::kF32));

struct Kernels {
  PanelKernels panel;
  StrictPanelKernels strict;
  DotKernels dot;
};

Kernels ActiveKernels() {
  return {EMBERKV_FOR_ACTIVE_ISA(kPanelKernels), EMBERKV_FOR_ACTIVE_ISA(kStrictPanelKernels),
          EMBERKV_FOR_ACTIVE_DOT_ISA(kDotKernels)};
}

// Up to kTileRows rows of input and where their products go. `packed` is nullptr where fp32 is
// used.
struct Tile {
  const float* x;
  size_t x_stride;
  const uint32_t* packed;
  int num_rows;
  float* y;
  size_t y_stride;
  Rounding rounding;
};

void DecodeBlock(const PanelKernels& kernels, WeightKind kind, const BlockView& block, float* out) {
  switch (kind) {
    case WeightKind::kFp8:
      return kernels.decode_fp8(block, out);
    case WeightKind::kFp4:
      return kernels.decode_fp4(block, out);
    case WeightKind::kBf16:
      return kernels.decode_bf16(block, out);
    case WeightKind::kF32:
      return;  // stored as decoding would leave it
  }
}

// One panel against a tile, in fp32.
void MultiplyInFp32(const Kernels& kernels, const PackedMatrix& w, const PanelView& panel,
                    const Tile& tile, float* sums) {
  alignas(64) float decoded[kMaxRun * kPanelRows];
  alignas(64) float run_sums[kTileRows * kPanelRows];
  const bool plain = panel.kind == WeightKind::kF32;
  const auto multiply_run = plain ? kernels.strict.multiply_run : kernels.panel.multiply_run;
  const int run_blocks = BlocksPerSum(panel.kind);
  std::memset(sums, 0, sizeof(float) * static_cast<size_t>(tile.num_rows) * kPanelRows);
  for (int b = 0; b < panel.num_blocks; b += run_blocks) {
    const float* values = plain ? reinterpret_cast<const float*>(panel.block(b).data) : decoded;
    for (int i = b; i < std::min(b + run_blocks, panel.num_blocks); ++i) {
      DecodeBlock(kernels.panel, panel.kind, panel.block(i),
                  decoded + (i - b) * kBlockK * kPanelRows);
    }
    const int k = b * kBlockK;
    multiply_run(values, std::min(run_blocks * kBlockK, w.cols() - k), tile.x + k, tile.x_stride,
                 tile.num_rows, run_sums);
    kernels.strict.add_scaled(panel.kind,
                              panel.scales + static_cast<size_t>(b) * BlockScaleBytes(panel.kind),
                              run_sums, tile.num_rows, sums);
  }
}

// Lines of the output that will be written are fetched while the panel is multiplied: where rows lie
// far apart, each write would wait for memory.
void FetchOutput(const Tile& tile, int first, int width) {
  for (int r = 0; r < tile.num_rows; ++r) {
    const float* y = tile.y + static_cast<size_t>(r) * tile.y_stride + first;
    __builtin_prefetch(y, 1);
    __builtin_prefetch(y + width - 1, 1);
  }
}

void MultiplyPanel(const Kernels& kernels, const PackedMatrix& w, int index, const Tile& tile) {
  alignas(64) float sums[kTileRows * kPanelRows];
  const PanelView panel = w.panel(index);
  const int first = index * kPanelRows;
  const int width = std::min(kPanelRows, w.rows() - first);
  if (tile.num_rows <= kFewRows) FetchOutput(tile, first, width);
  if (tile.packed != nullptr) {
    kernels.dot.multiply(panel, tile.packed, tile.num_rows, sums);
  } else {
    MultiplyInFp32(kernels, w, panel, tile, sums);
  }
  if (tile.rounding == Rounding::kBf16) kernels.panel.round_bf16(sums, tile.num_rows * kPanelRows);
  for (int r = 0; r < tile.num_rows; ++r) {
    std::copy_n(sums + r * kPanelRows, width,
                tile.y + static_cast<size_t>(r) * tile.y_stride + first);
  }
}

// for_each(n, products of one, body(begin, end)) runs body over [0, n), on one thread or on
// several.
template <class ForEach>
void MultiplyTiles(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
                   size_t y_stride, Rounding rounding, const ForEach& for_each) {
  static thread_local std::vector<uint32_t> scratch;
  const Kernels kernels = ActiveKernels();
  const bool may_pack = kernels.dot.multiply != nullptr && w.suits_bf16_dot();
  const size_t blocks = static_cast<size_t>(w.num_blocks());
  for (int row = 0; row < num_rows; row += kTileRows) {
    const int rows = std::min(kTileRows, num_rows - row);
    Tile tile = {x + static_cast<size_t>(row) * x_stride, x_stride, nullptr, rows,
                 y + static_cast<size_t>(row) * y_stride, y_stride, rounding};
    if (may_pack) {
      const size_t block_stride = static_cast<size_t>(rows) * kWordsPerBlock;
      scratch.resize(std::max(scratch.size(), blocks * block_stride));
      uint32_t* packed = scratch.data();
      std::atomic<bool> in_range = true;
      for_each(rows, w.cols(), [&](int64_t begin, int64_t end) {
        if (!kernels.dot.pack(tile.x + static_cast<size_t>(begin) * x_stride, x_stride,
                              static_cast<int>(end - begin), w.cols(), block_stride,
                              packed + begin * kWordsPerBlock)) {
          in_range = false;
        }
      });
      if (in_range) tile.packed = packed;
    }
    for_each(w.num_panels(), int64_t{rows} * kPanelRows * w.cols(),
             [&](int64_t begin, int64_t end) {
               for (int64_t panel = begin; panel < end; ++panel)
                 MultiplyPanel(kernels, w, static_cast<int>(panel), tile);
             });
  }
}

}  // namespace

void Multiply(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
              size_t y_stride, Rounding rounding, ThreadPool& pool) {
  const auto for_each = [&](int64_t n, int64_t products, const auto& body) {
    const int64_t grain =
        std::max<int64_t>({1, kMinParallelProducts / std::max<int64_t>(1, products),
                           n / (pool.num_threads() * kSharesOfThread)});
    pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end, int) { body(begin, end); });
  };
  if (w.num_panels() >= pool.num_threads() || num_rows <= kFewRows) {
    return MultiplyTiles(w, x, x_stride, num_rows, y, y_stride, rounding, for_each);
  }
  // Panels alone would not keep all threads busy, but rows do.
  for_each(num_rows, int64_t{w.num_panels()} * kPanelRows * w.cols(),
           [&](int64_t begin, int64_t end) {
             MultiplyHere(w, x + static_cast<size_t>(begin) * x_stride, x_stride,
                          static_cast<int>(end - begin), y + static_cast<size_t>(begin) * y_stride,
                          y_stride, rounding);
           });
}

void MultiplyHere(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
                  size_t y_stride, Rounding rounding) {
  MultiplyTiles(w, x, x_stride, num_rows, y, y_stride, rounding,
                [](int64_t n, int64_t, const auto& body) { body(0, n); });
}

}  // namespace emberkv
