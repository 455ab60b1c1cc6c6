// Scoring index keys and choosing rows for a group of queries (numerics 9).
//
// An IndexScanner is scratch for one thread: its memory depends on top-k and pool sizes, never on the
// context. Keys are read from their packed rows, 64 at a time, and shared by the queries of a group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/cache_rows.h"
#include "attention/selection.h"

namespace emberkv {

// Queries of one sequence and index source. Values are bf16: q after FP4 rounding, w scaled.
struct IndexQueries {
  const float* q = nullptr;  // [count][heads][dim]
  const float* w = nullptr;  // [count][heads]
  std::span<const int64_t> visible;  // [count]: query i sees rows [0, visible[i])
  int heads = 0;
  int dim = 0;

  int count() const { return static_cast<int>(visible.size()); }
};

struct CandidateLimits {
  int topk_blocks = 0;
  int block_size = 0;
};

class IndexScanner {
 public:
  static constexpr int kMaxQueries = 16;

  // Scores every visible key of `keys` and writes to selected[i] the ascending top-k of query i. With
  // `pool`, also writes the kept candidate blocks to candidates[i]. At most kMaxQueries queries.
  void Scan(const IndexQueries& queries, const PagedRows& keys, int topk,
            std::vector<int32_t>* selected, const CandidateLimits* pool,
            std::vector<int32_t>* candidates);

  // Query i of `queries` within its candidate blocks only.
  void ScanCandidates(const IndexQueries& queries, int i, const PagedRows& keys, int topk,
                      std::span<const int32_t> blocks, int block_size,
                      std::vector<int32_t>* selected);

  size_t bytes() const;

 private:
  // Loads up to 64 rows into the tile; rows beyond `n` are zero.
  void LoadTile(const PagedRows& keys, std::span<const int32_t> positions, int dim);

  std::vector<float> rows_;         // [64][dim]
  std::vector<float> channels_;     // [dim][64]
  std::vector<int32_t> positions_;  // of the tile's rows
  TopK topk_[kMaxQueries];
  CandidatePool pools_[kMaxQueries];
};

}  // namespace emberkv
