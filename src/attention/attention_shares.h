// Shares the attention of a step's rows out among threads. Where rows are few, the heads of a row are shared
// out too: a head's result does not depend on the heads beside it. Called by the model thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/thread_pool.h"

namespace emberkv {

// Heads [first_head, first_head + num_heads) of a row.
struct AttentionShare {
  int64_t row;
  int first_head;
  int num_heads;

  bool operator==(const AttentionShare&) const = default;
};

// Calls body(share, thread) for shares that cover each head of `rows` rows once. `thread` indexes scratch, as
// in ThreadPool::ParallelFor.
void ForEachAttentionShare(int64_t rows, int heads, ThreadPool* pool,
                           const std::function<void(const AttentionShare& share, int thread)>& body);

}  // namespace emberkv
