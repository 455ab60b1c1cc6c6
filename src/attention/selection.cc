#include "attention/selection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "attention/selection_kernels.h"
#include "base/isa.h"

namespace emberkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNoBound = std::numeric_limits<float>::quiet_NaN();
constexpr int kSlack = 1024;  // keys gathered beyond 2 k before the next compaction
constexpr int kSampleMost = 8192;
constexpr int kSampleFraction = 32;  // of a piece
constexpr int kSampleRun = 16;       // neighbouring scores, a cache line
constexpr int64_t kSampleLeast = 256;
constexpr int kBlocksAtOnce = 1024;

// Runs of kSampleRun scores to take from n, evenly spread; 0 where sampling does not pay.
int64_t SampleRuns(int64_t n, int k) {
  const int64_t size = std::min<int64_t>(kSampleMost, n / kSampleFraction);
  return size < kSampleLeast || n < 4 * int64_t{k} ? 0 : size / kSampleRun;
}

}  // namespace

const SelectionKernels& ActiveSelectionKernels() {
  return EMBERKV_FOR_ACTIVE_ISA(kSelectionKernels);
}

void TopK::Reset(int k) {
  k_ = k;
  count_ = 0;
  threshold_ = -kInfinity;
  keys_.resize(static_cast<size_t>(k) * 2 + kSlack);
}

void TopK::Compact() {
  if (count_ <= k_) return;
  const auto kth = keys_.begin() + k_ - 1;
  std::nth_element(keys_.begin(), kth, keys_.begin() + count_, std::greater<>());
  count_ = k_;
  // Later positions lose ties against the k-th, so from now on only strictly better scores count.
  uint32_t bits = static_cast<uint32_t>(*kth >> 32);
  bits ^= (bits >> 31) != 0 ? 0x80000000u : 0xffffffffu;
  std::memcpy(&threshold_, &bits, sizeof bits);
}

int64_t TopK::Collect(const float* scores, int64_t n, int32_t first, float low, float high) {
  int64_t came = 0;
  for (int64_t i = 0; i < n;) {
    const int before = count_;
    i = ActiveSelectionKernels().collect(scores, i, n, std::max(low, threshold_), high, first,
                                         keys_.data(), static_cast<int>(keys_.size()), &count_);
    came += count_ - before;
    if (i < n) Compact();
  }
  return came;
}

template <class Pass>
void TopK::CollectBest(float* sample, int in_sample, int64_t sampled, int64_t n, const Pass& pass) {
  if (n <= 0) return;  // of nothing there is no share
  // The sample's share of the k best, and four standard deviations.
  const double share =
      static_cast<double>(k_) * static_cast<double>(sampled) / static_cast<double>(n);
  int64_t rank = static_cast<int64_t>(share + 4 * std::sqrt(share) + 4);
  float high = kNoBound;
  for (int64_t found = 0;;) {
    float low = -kInfinity;
    if (rank < in_sample) {
      std::nth_element(sample, sample + rank, sample + in_sample, std::greater<>());
      low = std::nextafter(sample[rank], -kInfinity);
    }
    found += pass(low, high);
    // Scores at or below `low` cannot be chosen once k are above it, or when they lose to earlier
    // ones.
    if (found >= k_ || low <= threshold_) return;
    high = std::nextafter(low, kInfinity);
    rank = 4 * rank + 16;
  }
}

void TopK::Push(const float* scores, int64_t n, int32_t first) {
  const int64_t runs = SampleRuns(n, k_);
  float sample[kSampleMost];
  int in_sample = 0;
  for (int64_t run = 0; run < runs; ++run) {
    const float* from = scores + run * (n / runs);
    for (int i = 0; i < kSampleRun; ++i) {
      sample[in_sample] = from[i];
      in_sample += from[i] > threshold_ ? 1 : 0;
    }
  }
  CollectBest(sample, in_sample, runs * kSampleRun, n,
              [&](float low, float high) { return Collect(scores, n, first, low, high); });
}

void TopK::Merge(TopK* other) {
  Compact();
  other->Compact();
  std::copy_n(other->keys_.begin(), other->count_, keys_.begin() + count_);
  count_ += other->count_;
  Compact();
}

void TopK::Finish(std::vector<int32_t>* out) {
  Compact();
  const size_t begin = out->size();
  for (int i = 0; i < count_; ++i) out->push_back(PositionOfKey(keys_[static_cast<size_t>(i)]));
  std::sort(out->begin() + static_cast<int64_t>(begin), out->end());
}

void CandidatePool::Reset(int topk_blocks, int block_size) {
  block_size_ = block_size;
  block_ = -1;
  blocks_.Reset(topk_blocks);
}

void CandidatePool::Close() {
  if (block_ >= 0) blocks_.Collect(&block_max_, 1, block_, -kInfinity, kNoBound);
  block_ = -1;
}

void CandidatePool::Extend(const float* scores, int64_t n, int32_t block) {
  if (block != block_) {
    Close();
    block_ = block;
    block_max_ = -kInfinity;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (scores[i] > block_max_) block_max_ = scores[i];
  }
}

void CandidatePool::MaxOfBlocks(const float* scores, int64_t count, float* out) const {
  if (block_size_ == 8) {
    ActiveSelectionKernels().max_of_8(scores, count, out);
    return;
  }
  for (int64_t b = 0; b < count; ++b) {
    float most = -kInfinity;
    for (int i = 0; i < block_size_; ++i) most = std::max(most, scores[b * block_size_ + i]);
    out[b] = most;
  }
}

void CandidatePool::PushBlocks(const float* scores, int64_t count, int32_t first) {
  const int64_t runs = SampleRuns(count, blocks_.k_);
  float sample[kSampleMost];
  int in_sample = 0;
  for (int64_t run = 0; run < runs; ++run) {
    float most[kSampleRun];
    MaxOfBlocks(scores + run * (count / runs) * block_size_, kSampleRun, most);
    for (const float m : most) {
      sample[in_sample] = m;
      in_sample += m > blocks_.threshold_ ? 1 : 0;
    }
  }
  blocks_.CollectBest(sample, in_sample, runs * kSampleRun, count, [&](float low, float high) {
    int64_t came = 0;
    float most[kBlocksAtOnce];
    for (int64_t b = 0; b < count; b += kBlocksAtOnce) {
      const int64_t m = std::min<int64_t>(kBlocksAtOnce, count - b);
      MaxOfBlocks(scores + b * block_size_, m, most);
      came += blocks_.Collect(most, m, first + static_cast<int32_t>(b), low, high);
    }
    return came;
  });
}

void CandidatePool::Push(const float* scores, int64_t n, int32_t first) {
  if (n <= 0) return;
  const int32_t newest = (first + static_cast<int32_t>(n) - 1) / block_size_;
  int32_t block = first / block_size_;
  int64_t taken = std::min<int64_t>(n, (int64_t{block} + 1) * block_size_ - first);
  Extend(scores, taken, block);
  if (++block > newest) return;
  Close();
  PushBlocks(scores + taken, newest - block, block);
  taken += int64_t{newest - block} * block_size_;
  Extend(scores + taken, n - taken, newest);
}

void CandidatePool::Merge(CandidatePool* other) {
  // The newer of the two newest blocks stays open; the other takes part where its blocks came in
  // order.
  if (other->block_ > block_) {
    Close();
    block_ = other->block_;
    block_max_ = other->block_max_;
    other->block_ = -1;
  }
  other->Close();
  blocks_.Merge(&other->blocks_);
}

void CandidatePool::Finish(std::vector<int32_t>* out) {
  if (block_ >= 0) block_max_ = kInfinity;
  Close();
  blocks_.Finish(out);
}

}  // namespace emberkv
