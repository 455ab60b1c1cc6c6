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

constexpr int kHeadsAtOnce = 16;  // weighed between two rows that are decoded
constexpr size_t kRowsAhead = 8;  // on their way from memory while one is decoded

// Into the first cache: the CPU may drop prefetches into the second alone (docs/performance.md).
void Fetch(const PackedRow& row, int dim) {
  if (row.bytes == nullptr) return;
  constexpr int kForReading = 0, kFirstCache = 3;
  const size_t size = RowBytes(row.format, dim);
  for (size_t i = 0; i < size; i += 64) __builtin_prefetch(row.bytes + i, kForReading, kFirstCache);
  __builtin_prefetch(row.bytes + size - 1, kForReading, kFirstCache);
}

// False if the row is empty.
bool Decode(const PackedRow& row, int dim, uint32_t* pairs) {
  if (row.bytes == nullptr) return false;
  DecodeBf16Pairs(row.format, row.bytes, dim, pairs);
  return true;
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

uint64_t OnlineAttention::Fill(std::span<const PackedRow> rows) {
  uint64_t live = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (Decode(rows[r], dim_, row(static_cast<int>(r)))) live |= uint64_t{1} << r;
  }
  return live;
}

uint64_t OnlineAttention::AddTile(uint64_t live, std::span<const PackedRow> next) {
  // Empty rows at the end of a tile would change nothing: their probabilities are zero.
  const int rows = (static_cast<int>(std::bit_width(live)) + 1) / 2 * 2;
  if (rows == 0) return Fill(next);
  for (int r = 0; r < rows; ++r) {
    if ((live >> r & 1) == 0) std::fill_n(row(r), dim_ / 2, uint32_t{0});
  }
  const SparseAttentionKernels& kernels = Kernels();
  kernels.scores(q_.data(), k_.data(), rows, lanes_, dim_, s_.data(), v_.data());
  for (const PackedRow& r : next.first(std::min<size_t>(next.size(), kRowsAhead))) Fetch(r, dim_);
  kernels.softmax(s_.data(), rows, live, scale_, lanes_, m_.data(), l_.data(), rescale_.data(), p_.data());
  return Weigh(rows, next);
}

uint64_t OnlineAttention::Weigh(int rows, std::span<const PackedRow> next) {
  const SparseAttentionKernels& kernels = Kernels();
  const int calls_per_strip = lanes_ / kHeadsAtOnce, calls = dim_ / kStripChannels * calls_per_strip;
  uint64_t live = 0;
  // The rows' k is done with: the next tile's rows take its place, few at a time, so that those from memory
  // have time to come.
  for (int call = 0; call < calls; ++call) {
    const int strip = call / calls_per_strip, h = call % calls_per_strip * kHeadsAtOnce;
    const size_t begin = next.size() * call / calls, end = next.size() * (call + 1) / calls;
    for (size_t i = begin; i < end && i + kRowsAhead < next.size(); ++i) Fetch(next[i + kRowsAhead], dim_);
    for (size_t i = begin; i < end; ++i) {
      if (Decode(next[i], dim_, row(static_cast<int>(i)))) live |= uint64_t{1} << i;
    }
    kernels.weigh(p_.data() + h, v_.data() + strip * kStripPairs * kStripChannels, rows,
                  std::min(kHeadsAtOnce, heads_ - h), lanes_, rescale_.data() + h,
                  o_.data() + (strip * lanes_ + h) * kStripChannels);
  }
  return live;
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
  const auto take_tile = [&] {
    const auto tile = left.first(std::min<size_t>(left.size(), kAttentionTileRows));
    left = left.subspan(tile.size());
    return tile;
  };
  uint64_t live = online_.Fill(take_tile());
  while (!left.empty() || live != 0) live = online_.AddTile(live, take_tile());
  online_.Finish(query.sink, out);
}

}  // namespace emberkv
