// Attention of one query row over its list of cache rows, with a sink per head (numerics 10).
//
// The list has one order and one cut everywhere, prefill and decode alike, so results never depend on
// how rows are batched: columns [0, sliding_window) are the window, oldest first, empty at the end
// while the sequence is short; from column sliding_window on the selected global rows, ascending.
// Softmax runs online over tiles of 64 columns; probabilities are rounded to bf16 before they weigh
// the rows.
//
// Both classes are scratch for one thread and are reused.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/cache_rows.h"
#include "attention/tile_kernels.h"

namespace emberkv {

// The running state over tiles of decoded rows.
class OnlineAttention {
 public:
  // q [heads][dim], bf16 values, alive until Finish.
  void Begin(const float* q, int heads, int dim, float scale);

  // rows() [64][dim] and penalty() [64] (0, or -inf for an empty column) are filled by the caller.
  float* rows() { return rows_.data(); }
  float* penalty() { return penalty_.data(); }
  void AddTile();

  // out [heads][dim], bf16 values; sink [heads].
  void Finish(const float* sink, float* out) const;

  size_t bytes() const;

 private:
  const float* q_ = nullptr;
  int heads_ = 0;
  int dim_ = 0;
  float scale_ = 0;
  std::vector<float> rows_, channels_, penalty_, s_, o_, m_, l_;
};

struct AttentionQuery {
  const float* q = nullptr;  // [heads][dim], bf16 values
  int heads = 0;
  int dim = 0;
  const float* sink = nullptr;  // [heads]

  int sliding_window = 0;
  WindowRows window;
  int64_t window_begin = 0;  // first position seen through the window
  int64_t window_end = 0;    // one past the query's own position

  PagedRows global;
  std::span<const int32_t> selected;  // ascending rows of `global`
};

class SparseAttention {
 public:
  // out [heads][dim], bf16 values, not yet rotated back.
  void Run(const AttentionQuery& query, float* out);

  size_t bytes() const { return online_.bytes(); }

 private:
  OnlineAttention online_;
};

}  // namespace emberkv
