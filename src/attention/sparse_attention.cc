#include "attention/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/isa.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr float kNoMax = -1e30f;
constexpr float kEmpty = -std::numeric_limits<float>::infinity();

}  // namespace

const TileKernels& ActiveTileKernels() { return EMBERKV_FOR_ACTIVE_ISA(kTileKernels); }
const SoftmaxKernels& ActiveSoftmaxKernels() { return EMBERKV_FOR_ACTIVE_ISA(kSoftmaxKernels); }

void OnlineAttention::Begin(const float* q, int heads, int dim, float scale) {
  q_ = q;
  heads_ = heads;
  dim_ = dim;
  scale_ = scale;
  const size_t h = static_cast<size_t>(heads);
  const size_t d = static_cast<size_t>(dim);
  rows_.resize(kTileRows * d);
  channels_.resize(kTileRows * d);
  penalty_.resize(kTileRows);
  s_.resize(h * kTileRows);
  o_.assign(h * d, 0.0f);
  m_.assign(h, kNoMax);
  l_.assign(h, 0.0f);
}

void OnlineAttention::AddTile() {
  const TileKernels& tile = ActiveTileKernels();
  tile.transpose(rows_.data(), dim_, channels_.data());
  tile.dots(channels_.data(), dim_, q_, heads_, s_.data());
  ActiveSoftmaxKernels().step(s_.data(), penalty_.data(), scale_, heads_, dim_, m_.data(), l_.data(),
                              o_.data());
  tile.weighted_rows(s_.data(), rows_.data(), dim_, heads_, o_.data());
}

void OnlineAttention::Finish(const float* sink, float* out) const {
  ActiveSoftmaxKernels().finish(o_.data(), m_.data(), l_.data(), sink, heads_, dim_, out);
}

size_t OnlineAttention::bytes() const {
  return sizeof(float) * (rows_.capacity() + channels_.capacity() + penalty_.capacity() +
                          s_.capacity() + o_.capacity() + m_.capacity() + l_.capacity());
}

void SparseAttention::Run(const AttentionQuery& query, float* out) {
  online_.Begin(query.q, query.heads, query.dim, 1.0f / std::sqrt(static_cast<float>(query.dim)));
  const int64_t window_columns = query.window_end - query.window_begin;
  const int64_t columns = query.sliding_window + static_cast<int64_t>(query.selected.size());
  for (int64_t first = 0; first < columns; first += kTileRows) {
    int filled = 0;
    for (int r = 0; r < kTileRows; ++r) {
      const int64_t column = first + r;
      const int64_t choice = column - query.sliding_window;
      float* row = online_.rows() + static_cast<size_t>(r) * static_cast<size_t>(query.dim);
      bool empty = false;
      if (column < window_columns) {
        DecodeRow(RowFormat::kWindowKv, query.window.row(query.window_begin + column), query.dim, row);
      } else if (choice >= 0 && choice < static_cast<int64_t>(query.selected.size())) {
        DecodeRow(RowFormat::kGlobalKv, query.global.row(query.selected[static_cast<size_t>(choice)]),
                  query.dim, row);
      } else {
        empty = true;
        std::fill_n(row, query.dim, 0.0f);
      }
      online_.penalty()[r] = empty ? kEmpty : 0.0f;
      filled += empty ? 0 : 1;
    }
    // An empty tile would change nothing: its probabilities are zero and the maximum stays.
    if (filled > 0) online_.AddTile();
  }
  online_.Finish(query.sink, out);
}

}  // namespace emberkv
