// Scoring index keys and choosing rows for a group of queries (numerics 9).
//
// An IndexScanner is scratch for one thread: its memory depends on top-k and pool sizes, never on
// the context. Keys are read from their packed rows and shared by the queries of a group. Several
// scanners that began with the same queries can scan a part of the keys each, and one takes in what
// the others chose.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/cache_rows.h"
#include "attention/index_kernels.h"
#include "attention/selection.h"

namespace emberkv {

// Queries of one sequence and index source. Values are bf16: q after FP4 rounding, w scaled.
struct IndexQueries {
  const float* q = nullptr;          // [count][heads][dim]
  const float* w = nullptr;          // [count][heads]
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
  static constexpr int kMaxQueries = kDotMaxQueries;

  // Starts a group of at most kMaxQueries queries, whose views must stay valid until it is
  // finished. With `pool`, candidate blocks are chosen too.
  void Begin(const IndexQueries& queries, int topk, const CandidateLimits* pool);

  // Scores the keys of positions [begin, end) for every query that sees them. Ranges of one group
  // ascend and, with a pool, begin at a multiple of its block size.
  void ScanRange(const PagedRows& keys, int64_t begin, int64_t end);

  // Scores the keys of blocks [begin, end) of a list of candidates for query i. Calls for one query
  // ascend.
  void ScanBlocks(int i, const PagedRows& keys, std::span<const int32_t> blocks, int block_size,
                  int64_t begin, int64_t end);

  // Adds what `other` chose for the same queries from other keys.
  void Merge(IndexScanner* other);

  // Writes the ascending top-k of each query, and the kept candidate blocks if there is a pool.
  void Finish(std::vector<int32_t>* selected, std::vector<int32_t>* candidates);
  // The same for query i after ScanBlocks.
  void FinishBlocks(int i, std::span<const int32_t> blocks, int block_size,
                    std::vector<int32_t>* selected);

  // Scores of keys [begin, end) alone, at most kScores: scores[j - begin] for query i.
  void Score(int i, const PagedRows& keys, int64_t begin, int64_t end, float* scores);

  size_t bytes() const;

  static constexpr int64_t kScores = 16384;  // held at a time

 private:
  void Prepare();
  void AppendRows(const PagedRows& keys, int64_t begin, int64_t end);
  void ScoreRows(int first_query, int num_queries, const int* visible, float* scores,
                 int64_t stride);
  void ScoreTilePlainly(int first_row, int num_rows, int first_query, unsigned queries,
                        float* scores, int64_t stride);

  IndexQueries queries_;
  bool has_pool_ = false;
  TopK topk_[kMaxQueries];
  CandidatePool pools_[kMaxQueries];

  std::vector<uint8_t> prepared_;  // what dot_ points into
  DotQuery dot_[kMaxQueries];
  std::vector<const uint8_t*> rows_;  // of the keys being scored, num_rows_ of them
  int num_rows_ = 0;
  std::vector<float> scores_;
  std::vector<float> tile_, channels_;  // of the plain path: [64][dim], [dim][64]
};

}  // namespace emberkv
