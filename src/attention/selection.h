// Choosing rows: exact streaming top-k, and the candidate pool over blocks (numerics 9.2-9.5).
//
// Scores arrive in ascending position order in pieces of any size; memory is O(k) whatever the
// context. Equal scores: the lowest position wins (+0 equals -0). Scores of -inf are never chosen.
// Objects are reused between queries and belong to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emberkv {

class TopK {
 public:
  // Starts a query that keeps the k best.
  void Reset(int k);

  // Scores of positions first, first + 1, ...; `first` not below any position pushed before.
  void Push(const float* scores, int n, int32_t first);
  void Push(float score, int32_t position);

  // Appends the chosen positions in ascending order to `out`.
  void Finish(std::vector<int32_t>* out);

  size_t bytes() const { return entries_.capacity() * sizeof(Entry); }

 private:
  struct Entry {
    float score;
    int32_t position;
  };

  void Compact();

  int k_ = 0;
  float threshold_ = 0.0f;  // only scores above it can still be chosen
  std::vector<Entry> entries_;
};

class CandidatePool {
 public:
  void Reset(int topk_blocks, int block_size);

  // Scores of positions first .. first + n - 1, which must continue the previous call's.
  void Push(const float* scores, int n, int32_t first);

  // Appends the kept blocks in ascending order to `out`. The block of the newest position pushed is
  // always kept.
  void Finish(std::vector<int32_t>* out);

  size_t bytes() const { return blocks_.bytes(); }

 private:
  int block_size_ = 1;
  int32_t block_ = -1;  // the block being filled; -1 before the first score
  float block_max_ = 0.0f;
  TopK blocks_;
};

}  // namespace emberkv
