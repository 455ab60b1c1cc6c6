#include "attention/index_scan.h"

#include <algorithm>
#include <cassert>

#include "attention/tile_kernels.h"
#include "formats/row_codec.h"

namespace emberkv {

void IndexScanner::LoadTile(const PagedRows& keys, std::span<const int32_t> positions, int dim) {
  const size_t values = static_cast<size_t>(kTileRows) * static_cast<size_t>(dim);
  rows_.resize(values);
  channels_.resize(values);
  for (size_t r = 0; r < positions.size(); ++r) {
    DecodeRow(RowFormat::kIndexKey, keys.row(positions[r]), dim, rows_.data() + r * dim);
  }
  std::fill(rows_.begin() + static_cast<int64_t>(positions.size() * static_cast<size_t>(dim)),
            rows_.end(), 0.0f);
  ActiveTileKernels().transpose(rows_.data(), dim, channels_.data());
}

void IndexScanner::Scan(const IndexQueries& queries, const PagedRows& keys, int topk,
                        std::vector<int32_t>* selected, const CandidateLimits* pool,
                        std::vector<int32_t>* candidates) {
  const int count = queries.count();
  assert(count <= kMaxQueries);
  int64_t end = 0;
  for (int i = 0; i < count; ++i) {
    end = std::max(end, queries.visible[i]);
    topk_[i].Reset(topk);
    if (pool != nullptr) pools_[i].Reset(pool->topk_blocks, pool->block_size);
  }
  const size_t query_size = static_cast<size_t>(queries.heads) * static_cast<size_t>(queries.dim);
  float scores[kTileRows];
  for (int64_t first = 0; first < end; first += kTileRows) {
    positions_.clear();
    for (int64_t j = first; j < std::min(end, first + kTileRows); ++j) {
      positions_.push_back(static_cast<int32_t>(j));
    }
    LoadTile(keys, positions_, queries.dim);
    for (int i = 0; i < count; ++i) {
      const int n = static_cast<int>(std::clamp<int64_t>(queries.visible[i] - first, 0, kTileRows));
      if (n == 0) continue;
      ActiveTileKernels().index_scores(channels_.data(), queries.dim, queries.q + i * query_size,
                                       queries.w + i * queries.heads, queries.heads, scores);
      topk_[i].Push(scores, n, static_cast<int32_t>(first));
      if (pool != nullptr) pools_[i].Push(scores, n, static_cast<int32_t>(first));
    }
  }
  for (int i = 0; i < count; ++i) {
    selected[i].clear();
    topk_[i].Finish(&selected[i]);
    if (pool != nullptr) {
      candidates[i].clear();
      pools_[i].Finish(&candidates[i]);
    }
  }
}

void IndexScanner::ScanCandidates(const IndexQueries& queries, int i, const PagedRows& keys, int topk,
                                  std::span<const int32_t> blocks, int block_size,
                                  std::vector<int32_t>* selected) {
  const size_t query_size = static_cast<size_t>(queries.heads) * static_cast<size_t>(queries.dim);
  TopK& best = topk_[0];
  best.Reset(topk);
  positions_.clear();
  float scores[kTileRows];
  const auto score_tile = [&] {
    LoadTile(keys, positions_, queries.dim);
    ActiveTileKernels().index_scores(channels_.data(), queries.dim, queries.q + i * query_size,
                                     queries.w + i * queries.heads, queries.heads, scores);
    for (size_t r = 0; r < positions_.size(); ++r) best.Push(scores[r], positions_[r]);
    positions_.clear();
  };
  for (const int32_t block : blocks) {
    const int64_t begin = int64_t{block} * block_size;
    const int64_t end = std::min(begin + block_size, queries.visible[i]);
    for (int64_t j = begin; j < end; ++j) {
      positions_.push_back(static_cast<int32_t>(j));
      if (positions_.size() == kTileRows) score_tile();
    }
  }
  if (!positions_.empty()) score_tile();
  selected->clear();
  best.Finish(selected);
}

size_t IndexScanner::bytes() const {
  size_t bytes = sizeof(*this) + (rows_.capacity() + channels_.capacity()) * sizeof(float) +
                 positions_.capacity() * sizeof(int32_t);
  for (int i = 0; i < kMaxQueries; ++i) bytes += topk_[i].bytes() + pools_[i].bytes();
  return bytes;
}

}  // namespace emberkv
