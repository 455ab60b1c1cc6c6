// Carries sealed pages to the durable tier behind the requests' backs.
//
// A bounded queue and one writer thread, which stores pages in batches. A page is pinned until its
// copy is durable or refused. A full queue drops the new page and counts it: decode never waits for
// a disk. Any thread may call. The store is not owned and outlives this; it holds page handles, so
// it ends before the pool does.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "cache/block_identity.h"
#include "cache/page_pool.h"
#include "store/kv_store.h"

namespace emberkv {

inline constexpr size_t kNumPutOutcomes = static_cast<size_t>(PutOutcome::kFailed) + 1;

struct WriteBehindStats {
  size_t queued_pages = 0;  // pinned by the queue, the batch being written included
  uint64_t offered = 0;     // pages given to Push
  uint64_t dropped = 0;  // of these: the queue was full, or the end came before they were written
  std::array<uint64_t, kNumPutOutcomes>
      outcomes{};  // of the pages that were written, by PutOutcome
  uint64_t touches_dropped = 0;
};

class WriteBehind {
 public:
  WriteBehind(KvStore* store, size_t page_bytes, size_t max_queued_pages, size_t batch_pages);
  // Ends after the batch being written and drops the rest: Flush first to keep it.
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Queues a complete page, or drops it and returns false.
  bool Push(PageHandle page, const BlockIdentity& block, const Digest& tenant,
            const StoreLimits& limits = {});

  // Extends the blocks' deadlines in the store some time soon: they were served from memory.
  void Touch(std::span<const BlockHash> blocks);

  // Drops what is queued for the tenant, and waits until the batch being written is done or `timeout` has
  // passed. Whether nothing of the tenant's can be written any more.
  bool Drop(const Digest& tenant, std::chrono::milliseconds timeout);

  // Waits until all that was queued is written or `timeout` has passed. Whether the queue is empty.
  bool Flush(std::chrono::milliseconds timeout);

  WriteBehindStats stats() const;

 private:
  struct Entry {
    PageHandle page;
    BlockIdentity block;  // views `tokens`
    std::vector<int32_t> tokens;
    Digest tenant;
    StoreLimits limits;
  };

  void WriterMain();
  std::vector<PutOutcome> Write(const std::vector<Entry>& batch);

  // Constant after construction.
  KvStore* const store_;
  const size_t page_bytes_;
  const size_t max_queued_pages_;
  const size_t batch_pages_;

  mutable std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable idle_;
  std::condition_variable written_;  // a batch
  std::deque<Entry> queue_;                            // guarded by mutex_
  std::unordered_set<BlockHash, DigestHash> touches_;  // guarded by mutex_
  bool is_writing_ = false;                            // guarded by mutex_
  uint64_t batches_ = 0;                               // guarded by mutex_: written
  bool is_stopping_ = false;                           // guarded by mutex_
  WriteBehindStats stats_;                             // guarded by mutex_

  std::thread writer_;  // last: started after the rest exists
};

}  // namespace emberkv
