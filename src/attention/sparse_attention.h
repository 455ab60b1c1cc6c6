// Attention of one query row over its list of cache rows, with a sink per head (numerics 10).
//
// The list has one order and one cut everywhere, prefill and decode alike, so results never depend on
// how rows are batched: columns [0, sliding_window) are the window, oldest first, empty at the end
// while the sequence is short; from column sliding_window on the selected global rows, ascending.
// Softmax runs online over tiles of 64 columns; probabilities are rounded to bf16 before they weigh
// the rows. sparse_attention_kernels.h gives the order of every sum; reference::TiledAttention is the plain
// twin.
//
// Both classes are scratch for one thread and are reused.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/cache_rows.h"
#include "attention/sparse_attention_kernels.h"
#include "formats/row_codec.h"

namespace emberkv {

// An array that begins on a cache line and is left as it is when it need not grow.
template <class T>
class AlignedArray {
 public:
  void Reserve(size_t size) {
    if (lines_.size() * kPerLine < size) lines_.resize((size + kPerLine - 1) / kPerLine);
  }
  T* data() { return reinterpret_cast<T*>(lines_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(lines_.data()); }
  size_t bytes() const { return lines_.capacity() * sizeof(Line); }

 private:
  static constexpr size_t kPerLine = 64 / sizeof(T);
  struct alignas(64) Line {
    T values[kPerLine];
  };
  std::vector<Line> lines_;
};

// A row where it lies in the cache; nullptr: empty.
struct PackedRow {
  const uint8_t* bytes = nullptr;
  RowFormat format = RowFormat::kGlobalKv;
};

// The running state over tiles of decoded rows.
class OnlineAttention {
 public:
  // q [heads][dim], bf16 values.
  void Begin(const float* q, int heads, int dim, float scale);

  // Row r < 64 of the tile that is being filled: dim / 2 pairs of bf16 values (DecodeBf16Pairs).
  uint32_t* row(int r) { return k_.data() + static_cast<size_t>(r) * static_cast<size_t>(dim_ / 2); }

  // Decodes up to 64 rows into the tile; -> which of them are not empty, a bit each.
  uint64_t Fill(std::span<const PackedRow> rows);

  // Takes in the rows whose bit in `live` is set; the caller or Fill has filled them. Then the tile is filled
  // with `next`, as Fill does it, but its rows come from memory while there is work to do.
  uint64_t AddTile(uint64_t live, std::span<const PackedRow> next = {});

  // out [heads][dim], bf16 values; sink [heads].
  void Finish(const float* sink, float* out) const;

  size_t bytes() const;

 private:
  // The end of AddTile: weighs the rows taken in and fills the tile with `next`.
  uint64_t Weigh(int rows, std::span<const PackedRow> next);

  int heads_ = 0;
  int lanes_ = 0;
  int dim_ = 0;
  float scale_ = 0;
  AlignedArray<uint32_t> q_, k_, v_, p_;
  AlignedArray<float> s_, o_, m_, l_, rescale_;
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

  // The same with heads [first, first + count) only, whose results are the same as among all.
  AttentionQuery of_heads(int first, int count) const {
    AttentionQuery part = *this;
    part.q += static_cast<size_t>(first) * static_cast<size_t>(dim);
    part.sink += first;
    part.heads = count;
    return part;
  }
};

class SparseAttention {
 public:
  // out [heads][dim], bf16 values, not yet rotated back.
  void Run(const AttentionQuery& query, float* out);

  size_t bytes() const { return online_.bytes() + columns_.capacity() * sizeof(columns_[0]); }

 private:
  void ListColumns(const AttentionQuery& query);

  OnlineAttention online_;
  std::vector<PackedRow> columns_;
};

}  // namespace emberkv
