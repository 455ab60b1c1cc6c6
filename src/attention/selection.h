// Choosing rows: exact streaming top-k, and the candidate pool over blocks (numerics 9.2-9.5).
//
// Scores arrive in pieces of any size, in ascending order of position; memory is O(k) whatever the
// context. Equal scores: the lowest position wins (+0 equals -0). Scores of -inf and NaN are never
// chosen. A large piece is sampled first, for a threshold that spares most of its scores; the
// choice is exact whatever the sample says. Objects are reused between queries and belong to one
// thread at a time; what several threads chose from parts of the positions is merged into one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emberkv {

class TopK {
 public:
  // Starts a query that keeps the k best.
  void Reset(int k);

  // Scores of positions first, first + 1, ...; `first` is above any position pushed before.
  void Push(const float* scores, int64_t n, int32_t first);

  // Adds what `other` chose from other positions, in any order.
  void Merge(TopK* other);

  // Appends the chosen positions in ascending order to `out`.
  void Finish(std::vector<int32_t>* out);

  size_t bytes() const { return keys_.capacity() * sizeof(uint64_t); }

 private:
  friend class CandidatePool;

  void Compact();
  // Adds the scores in (low, high) that can still be chosen, and says how many came.
  int64_t Collect(const float* scores, int64_t n, int32_t first, float low, float high);
  // Calls pass(low, high), which collects from n scores, for falling ranges until k were found or
  // none is left. Reorders `sample`, which holds scores above the threshold out of `sampled` ones.
  template <class Pass>
  void CollectBest(float* sample, int in_sample, int64_t sampled, int64_t n, const Pass& pass);

  int k_ = 0;
  int count_ = 0;           // keys held
  float threshold_ = 0.0f;  // only scores above it can still be chosen
  std::vector<uint64_t> keys_;
};

class CandidatePool {
 public:
  void Reset(int topk_blocks, int block_size);

  // Scores of positions first .. first + n - 1. `first` continues the previous call's positions, or
  // begins a block above them.
  void Push(const float* scores, int64_t n, int32_t first);

  // Adds what `other` chose from other blocks.
  void Merge(CandidatePool* other);

  // Appends the kept blocks in ascending order to `out`. The block of the newest position pushed is
  // always kept.
  void Finish(std::vector<int32_t>* out);

  size_t bytes() const { return blocks_.bytes(); }

 private:
  void Close();  // the open block, if any, takes part
  void Extend(const float* scores, int64_t n, int32_t block);
  void PushBlocks(const float* scores, int64_t count, int32_t first);
  void MaxOfBlocks(const float* scores, int64_t count, float* out) const;

  int block_size_ = 1;
  int32_t block_ = -1;  // the newest block, which is open; -1 before the first score
  float block_max_ = 0.0f;
  TopK blocks_;
};

}  // namespace emberkv
