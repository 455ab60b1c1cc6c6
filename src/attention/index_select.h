// Top-k and candidate blocks of all queries of a step: who scans which keys on which thread
// (numerics 9).
//
// Many groups of queries are spread over the threads; of few, each long one is cut by keys and all
// threads scan it, so that one decode row at a long context keeps every core busy. The cut changes
// no result.
#pragma once

#include <span>
#include <vector>

#include "attention/index_scan.h"
#include "base/thread_pool.h"

namespace emberkv {

// Queries that share a pass over the keys of their sequence, at most IndexScanner::kMaxQueries.
struct IndexGroup {
  IndexQueries queries;
  PagedRows keys;
  std::vector<int32_t>* selected = nullptr;    // [count], written
  std::vector<int32_t>* candidates = nullptr;  // [count], written or read as `CandidateUse` says
};

enum class CandidateUse { kNone, kChoose, kFilter };

struct IndexLimits {
  int topk = 0;
  CandidateLimits candidates;
  CandidateUse use = CandidateUse::kNone;
};

// `scanners` has one for each thread of `pool`.
void SelectRows(std::span<const IndexGroup> groups, const IndexLimits& limits,
                std::span<IndexScanner> scanners, ThreadPool* pool);

}  // namespace emberkv
