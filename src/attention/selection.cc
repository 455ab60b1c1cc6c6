#include "attention/selection.h"

#include <algorithm>
#include <limits>

namespace emberkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kSlack = 1024;  // entries gathered beyond k before the next compaction

}  // namespace

void TopK::Reset(int k) {
  k_ = k;
  threshold_ = -kInfinity;
  entries_.clear();
  entries_.reserve(static_cast<size_t>(k) * 2 + kSlack);
}

void TopK::Push(float score, int32_t position) {
  if (!(score > threshold_)) return;
  entries_.push_back({score, position});
  if (entries_.size() == static_cast<size_t>(k_) * 2 + kSlack) Compact();
}

void TopK::Push(const float* scores, int n, int32_t first) {
  for (int i = 0; i < n; ++i) {
    if (scores[i] > threshold_) Push(scores[i], first + i);
  }
}

void TopK::Compact() {
  const size_t k = static_cast<size_t>(k_);
  if (entries_.size() <= k) return;
  const auto better = [](const Entry& a, const Entry& b) {
    return a.score > b.score || (a.score == b.score && a.position < b.position);
  };
  std::nth_element(entries_.begin(), entries_.begin() + static_cast<int64_t>(k) - 1, entries_.end(),
                   better);
  entries_.resize(k);
  // Later positions lose ties against the k-th, so from now on only strictly better scores count.
  threshold_ = entries_.back().score;
}

void TopK::Finish(std::vector<int32_t>* out) {
  Compact();
  const size_t begin = out->size();
  for (const Entry& entry : entries_) out->push_back(entry.position);
  std::sort(out->begin() + static_cast<int64_t>(begin), out->end());
}

void CandidatePool::Reset(int topk_blocks, int block_size) {
  block_size_ = block_size;
  block_ = -1;
  blocks_.Reset(topk_blocks);
}

void CandidatePool::Push(const float* scores, int n, int32_t first) {
  for (int i = 0; i < n; ++i) {
    const int32_t block = (first + i) / block_size_;
    if (block != block_) {
      if (block_ >= 0) blocks_.Push(block_max_, block_);
      block_ = block;
      block_max_ = scores[i];
    } else if (scores[i] > block_max_) {
      block_max_ = scores[i];
    }
  }
}

void CandidatePool::Finish(std::vector<int32_t>* out) {
  // The last block holds the query's newest entry and is kept whatever its score.
  if (block_ >= 0) blocks_.Push(kInfinity, block_);
  blocks_.Finish(out);
}

}  // namespace emberkv
