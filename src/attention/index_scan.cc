#include "attention/index_scan.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/isa.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr int64_t kRowsAtOnce = 2048;  // row addresses gathered for one call of a kernel
constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

const IndexKernels& ActiveIndexKernels() { return EMBERKV_FOR_ACTIVE_DOT_ISA(kIndexKernels); }

void IndexScanner::Begin(const IndexQueries& queries, int topk, const CandidateLimits* pool) {
  assert(queries.count() <= kMaxQueries);
  queries_ = queries;
  has_pool_ = pool != nullptr;
  for (int i = 0; i < queries.count(); ++i) {
    topk_[i].Reset(topk);
    if (pool != nullptr) pools_[i].Reset(pool->topk_blocks, pool->block_size);
  }
  scores_.resize(kScores);
  rows_.resize(kRowsAtOnce + kDotTileRows + kDotAhead);
  Prepare();
}

void IndexScanner::Prepare() {
  const IndexKernels& kernels = ActiveIndexKernels();
  if (kernels.prepare == nullptr) return;
  const size_t heads =
      static_cast<size_t>((queries_.heads + kDotHeads - 1) / kDotHeads * kDotHeads);
  const size_t dim = static_cast<size_t>(queries_.dim);
  const size_t codes = Aligned(heads * dim);
  const size_t per_head = Aligned(heads * sizeof(float));
  const size_t per_query = codes + 3 * per_head + 2 * kDotMaxGroups * per_head;
  prepared_.resize(kMaxQueries * per_query + kAlignment);
  uint8_t* at = prepared_.data();
  at += Aligned(reinterpret_cast<uintptr_t>(at)) - reinterpret_cast<uintptr_t>(at);
  const auto take = [&](size_t bytes) { return std::exchange(at, at + bytes); };
  for (int i = 0; i < queries_.count(); ++i) {
    DotQuery& query = dot_[i];
    query.codes = reinterpret_cast<int8_t*>(take(codes));
    query.bias = reinterpret_cast<int32_t*>(take(per_head));
    query.weights = reinterpret_cast<float*>(take(per_head));
    query.folded = reinterpret_cast<float*>(take(per_head));
    query.group_bias = reinterpret_cast<int32_t*>(take(kDotMaxGroups * per_head));
    query.group_units = reinterpret_cast<float*>(take(kDotMaxGroups * per_head));
    kernels.prepare(queries_.q + static_cast<size_t>(i * queries_.heads) * dim,
                    queries_.w + i * queries_.heads, queries_.heads, queries_.dim, &query);
  }
}

void IndexScanner::AppendRows(const PagedRows& keys, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t page_end = (begin / keys.rows_per_block + 1) * keys.rows_per_block;
    const int64_t n = std::min(end, page_end) - begin;
    const uint8_t* row = keys.row(begin);
    const uint8_t** out = rows_.data() + num_rows_;
    for (int64_t i = 0; i < n; ++i) out[i] = row + static_cast<size_t>(i) * keys.row_bytes;
    num_rows_ += static_cast<int>(n);
    begin += n;
  }
}

// Scores rows_[0 .. the greatest of visible), whose scores of query i go to scores + i * stride.
void IndexScanner::ScoreRows(int first_query, int num_queries, const int* visible, float* scores,
                             int64_t stride) {
  const int count = *std::max_element(visible, visible + num_queries);
  if (count == 0) return;
  const IndexKernels& kernels = ActiveIndexKernels();
  const unsigned all = (1u << num_queries) - 1;
  bool any_exact = false;
  for (int i = 0; i < num_queries && kernels.dot_scores != nullptr; ++i)
    any_exact |= dot_[first_query + i].exact;
  if (!any_exact) {
    for (int r = 0; r < count; r += kPlainTileRows) {
      ScoreTilePlainly(r, std::min(kPlainTileRows, count - r), first_query, all, scores, stride);
    }
    return;
  }
  const int needed = (count + kDotTileRows - 1) / kDotTileRows * kDotTileRows + kDotAhead;
  for (int r = num_rows_; r < needed; ++r) rows_[static_cast<size_t>(r)] = rows_[0];
  uint16_t left_plain[kRowsAtOnce / kDotTileRows];
  kernels.dot_scores({rows_.data(), count}, dot_ + first_query, visible, num_queries, scores,
                     static_cast<size_t>(stride), left_plain);
  for (int r = 0; r < count; r += kDotTileRows) {
    const unsigned left = left_plain[r / kDotTileRows];
    if (left != 0)
      ScoreTilePlainly(r, std::min(kDotTileRows, count - r), first_query, left, scores, stride);
  }
}

void IndexScanner::ScoreTilePlainly(int first_row, int num_rows, int first_query, unsigned queries,
                                    float* scores, int64_t stride) {
  const size_t dim = static_cast<size_t>(queries_.dim);
  tile_.resize(kPlainTileRows * dim);
  channels_.resize(kPlainTileRows * dim);
  for (int r = 0; r < num_rows; ++r) {
    DecodeRow(RowFormat::kIndexKey, rows_[static_cast<size_t>(first_row + r)], queries_.dim,
              tile_.data() + static_cast<size_t>(r) * dim);
  }
  std::fill(tile_.begin() + static_cast<int64_t>(static_cast<size_t>(num_rows) * dim), tile_.end(),
            0.0f);
  const IndexKernels& kernels = ActiveIndexKernels();
  kernels.transpose(tile_.data(), queries_.dim, channels_.data());
  float tile_scores[kPlainTileRows];
  for (int i = 0; queries >> i != 0; ++i) {
    if ((queries >> i & 1) == 0) continue;
    const int query = first_query + i;
    kernels.plain_scores(channels_.data(), queries_.dim,
                         queries_.q + static_cast<size_t>(query * queries_.heads) * dim,
                         queries_.w + query * queries_.heads, queries_.heads, tile_scores);
    std::copy_n(tile_scores, num_rows, scores + i * stride + first_row);
  }
}

void IndexScanner::ScanRange(const PagedRows& keys, int64_t begin, int64_t end) {
  const int count = queries_.count();
  const int64_t stride = kScores / count / kPlainTileRows * kPlainTileRows;
  end = std::min(end, *std::max_element(queries_.visible.begin(), queries_.visible.end()));
  for (int64_t first = begin; first < end; first += stride) {
    const int64_t stop = std::min(end, first + stride);
    for (int64_t j = first; j < stop; j += kRowsAtOnce) {
      const int64_t n = std::min(kRowsAtOnce, stop - j);
      num_rows_ = 0;
      AppendRows(keys, j, std::min(j + n + kDotAhead, end));
      int visible[kMaxQueries];
      for (int i = 0; i < count; ++i) {
        visible[i] = static_cast<int>(
            std::clamp<int64_t>(queries_.visible[static_cast<size_t>(i)] - j, 0, n));
      }
      ScoreRows(0, count, visible, scores_.data() + (j - first), stride);
    }
    for (int i = 0; i < count; ++i) {
      const int64_t n = std::min(queries_.visible[static_cast<size_t>(i)], stop) - first;
      if (n <= 0) continue;
      topk_[i].Push(scores_.data() + i * stride, n, static_cast<int32_t>(first));
      if (has_pool_) pools_[i].Push(scores_.data() + i * stride, n, static_cast<int32_t>(first));
    }
  }
}

void IndexScanner::ScanBlocks(int i, const PagedRows& keys, std::span<const int32_t> blocks,
                              int block_size, int64_t begin, int64_t end) {
  // Positions are ordered like places in the list of blocks, and only the last block can be cut
  // short; so places stand for positions until FinishBlocks.
  const int64_t visible = queries_.visible[static_cast<size_t>(i)];
  int64_t place = begin * block_size;
  num_rows_ = 0;
  const auto score = [&] {
    const int n = num_rows_;
    if (n == 0) return;
    ScoreRows(i, 1, &n, scores_.data(), 0);
    topk_[i].Push(scores_.data(), n, static_cast<int32_t>(place));
    place += n;
    num_rows_ = 0;
  };
  for (int64_t b = begin; b < end; ++b) {
    int64_t position = int64_t{blocks[static_cast<size_t>(b)]} * block_size;
    const int64_t stop = std::min(position + block_size, visible);
    while (position < stop) {
      const int64_t n = std::min(stop - position, kRowsAtOnce - num_rows_);
      AppendRows(keys, position, position + n);
      position += n;
      if (num_rows_ == kRowsAtOnce) score();
    }
  }
  score();
}

void IndexScanner::Merge(IndexScanner* other) {
  for (int i = 0; i < queries_.count(); ++i) {
    topk_[i].Merge(&other->topk_[i]);
    if (has_pool_) pools_[i].Merge(&other->pools_[i]);
  }
}

void IndexScanner::Finish(std::vector<int32_t>* selected, std::vector<int32_t>* candidates) {
  for (int i = 0; i < queries_.count(); ++i) {
    selected[i].clear();
    topk_[i].Finish(&selected[i]);
    if (!has_pool_) continue;
    candidates[i].clear();
    pools_[i].Finish(&candidates[i]);
  }
}

void IndexScanner::FinishBlocks(int i, std::span<const int32_t> blocks, int block_size,
                                std::vector<int32_t>* selected) {
  selected->clear();
  topk_[i].Finish(selected);
  for (int32_t& place : *selected) {
    place = blocks[static_cast<size_t>(place / block_size)] * block_size + place % block_size;
  }
}

void IndexScanner::Score(int i, const PagedRows& keys, int64_t begin, int64_t end, float* scores) {
  for (int64_t j = begin; j < end; j += kRowsAtOnce) {
    const int n = static_cast<int>(std::min(kRowsAtOnce, end - j));
    num_rows_ = 0;
    AppendRows(keys, j, j + n);
    // The kernel writes whole tiles.
    ScoreRows(i, 1, &n, scores_.data(), 0);
    std::copy_n(scores_.data(), n, scores + (j - begin));
  }
}

size_t IndexScanner::bytes() const {
  size_t bytes = sizeof(*this) + prepared_.capacity() + rows_.capacity() * sizeof(rows_[0]) +
                 (scores_.capacity() + tile_.capacity() + channels_.capacity()) * sizeof(float);
  for (int i = 0; i < kMaxQueries; ++i) bytes += topk_[i].bytes() + pools_[i].bytes();
  return bytes;
}

}  // namespace emberkv
