#include "attention/sparse_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/isa.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr float kNoMax = -1e30f;

const SparseAttentionKernels& Kernels() { return EMBERKV_FOR_ACTIVE_DOT_ISA(kSparseAttentionKernels); }

void Fetch(const PackedRow& row, int dim) {
  if (row.bytes == nullptr) return;
  constexpr int kForReading = 0, kSecondCache = 2;
  const size_t size = RowBytes(row.format, dim);
  for (size_t i = 0; i < size; i += 64) __builtin_prefetch(row.bytes + i, kForReading, kSecondCache);
  __builtin_prefetch(row.bytes + size - 1, kForReading, kSecondCache);
}

}  // namespace

void OnlineAttention::Begin(const float* q, int heads, int dim, float scale) {
  heads_ = heads;
  lanes_ = AttentionLanes(heads);
  dim_ = dim;
  scale_ = scale;
  const size_t lanes = static_cast<size_t>(lanes_), d = static_cast<size_t>(dim);
  q_.Reserve(lanes * d / 2);
  k_.Reserve(kAttentionTileRows * d / 2);
  v_.Reserve(kStripPairs * d);
  s_.Reserve(kAttentionTileRows * lanes);
  p_.Reserve(kAttentionTileRows / 2 * lanes);
  o_.Reserve(lanes * d);
  m_.Reserve(lanes);
  l_.Reserve(lanes);
  rescale_.Reserve(lanes);
  Kernels().pack_queries(q, heads, dim, q_.data());
  std::fill_n(o_.data(), lanes * d, 0.0f);
  std::fill_n(m_.data(), lanes, kNoMax);
  std::fill_n(l_.data(), lanes, 0.0f);
}

void OnlineAttention::AddTile(uint64_t live, std::span<const PackedRow> next) {
  // Empty rows at the end of a tile would change nothing: their probabilities are zero.
  const int rows = (static_cast<int>(std::bit_width(live)) + 1) / 2 * 2;
  if (rows == 0) return;
  for (int r = 0; r < rows; ++r) {
    if ((live >> r & 1) == 0) std::fill_n(row(r), dim_ / 2, uint32_t{0});
  }
  const SparseAttentionKernels& kernels = Kernels();
  // Memory is slow to answer, so a few rows are asked for at a time, all along the way.
  const int block = kernels.rows_at_once;
  for (int r = 0; r < rows; r += block) {
    for (size_t i = static_cast<size_t>(r); i < std::min<size_t>(next.size(), r + block); ++i)
      Fetch(next[i], dim_);
    kernels.scores(q_.data(), row(r), std::min(block, rows - r), lanes_, dim_, s_.data() + r * lanes_,
                   v_.data() + r / 2 * kStripChannels);
  }
  kernels.softmax(s_.data(), rows, live, scale_, lanes_, m_.data(), l_.data(), rescale_.data(), p_.data());
  kernels.weigh(p_.data(), v_.data(), rows, heads_, dim_, rescale_.data(), o_.data());
}

void OnlineAttention::Finish(const float* sink, float* out) const {
  Kernels().finish(o_.data(), m_.data(), l_.data(), sink, heads_, dim_, out);
}

size_t OnlineAttention::bytes() const {
  return q_.bytes() + k_.bytes() + v_.bytes() + s_.bytes() + p_.bytes() + o_.bytes() + m_.bytes() +
         l_.bytes() + rescale_.bytes();
}

void SparseAttention::ListColumns(const AttentionQuery& query) {
  columns_.assign(static_cast<size_t>(query.sliding_window), {nullptr, RowFormat::kWindowKv});
  for (int64_t pos = query.window_begin; pos < query.window_end; ++pos) {
    columns_[static_cast<size_t>(pos - query.window_begin)].bytes = query.window.row(pos);
  }
  for (const int32_t j : query.selected) columns_.push_back({query.global.row(j), RowFormat::kGlobalKv});
}

void SparseAttention::Run(const AttentionQuery& query, float* out) {
  online_.Begin(query.q, query.heads, query.dim, 1.0f / std::sqrt(static_cast<float>(query.dim)));
  ListColumns(query);
  std::span<const PackedRow> left = columns_;
  while (!left.empty()) {
    const auto tile = left.first(std::min<size_t>(left.size(), kAttentionTileRows));
    left = left.subspan(tile.size());
    uint64_t live = 0;
    for (size_t r = 0; r < tile.size(); ++r) {
      if (tile[r].bytes == nullptr) continue;
      DecodeBf16Pairs(tile[r].format, tile[r].bytes, query.dim, online_.row(static_cast<int>(r)));
      live |= uint64_t{1} << r;
    }
    online_.AddTile(live, left.first(std::min<size_t>(left.size(), kAttentionTileRows)));
  }
  online_.Finish(query.sink, out);
}

}  // namespace emberkv
