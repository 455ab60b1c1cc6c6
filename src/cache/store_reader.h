// Reads pages of the durable tier into pages of the pool, within a time.
//
// A read that runs past its deadline keeps its pages pinned until the store lets go of them, while
// the caller goes on; until then the reader is hung and its owner asks the store for nothing more
// (the tier's breaker). Any thread may call. The store is not owned and outlives this; this ends
// before the pool does, and its end waits for reads that are still under way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cache/block_identity.h"
#include "cache/page_pool.h"
#include "store/kv_store.h"

namespace emberkv {

struct StoreRead {
  std::vector<GetOutcome> outcomes;  // one per block
  std::vector<PageHandle> pages;     // one per block; holds a page where the outcome is kHit
};

class StoreReader {
 public:
  StoreReader(KvStore* store, size_t page_bytes);
  ~StoreReader();
  StoreReader(const StoreReader&) = delete;
  StoreReader& operator=(const StoreReader&) = delete;

  // Reads `blocks` into `pages`, as many.
  StoreRead Read(std::span<const BlockIdentity> blocks, std::vector<PageHandle> pages,
                 std::chrono::milliseconds timeout);

  // Why a block that the store does not contain is not there. kHit when it has come meanwhile.
  GetOutcome ReasonOfMiss(const BlockIdentity& block, std::chrono::milliseconds timeout);

  bool is_hung() const { return num_overdue() > 0; }
  size_t num_overdue() const;  // reads that ran past their deadline and are still under way

 private:
  // A batch and all that the store may touch while it is under way. The read goes first.
  struct Batch {
    std::vector<std::vector<int32_t>> tokens;
    std::vector<PageHandle> pages;
    std::unique_ptr<uint8_t[]> scratch;
    std::unique_ptr<PendingGet> pending;
  };

  void Start(std::span<const BlockIdentity> blocks, std::chrono::milliseconds timeout,
             Batch* batch);
  void Abandon(Batch batch);
  void ReaperMain();

  // Constant after construction.
  KvStore* const store_;
  const size_t page_bytes_;

  mutable std::mutex mutex_;
  std::condition_variable overdue_ready_;
  std::vector<Batch> overdue_;  // guarded by mutex_
  size_t num_overdue_ = 0;      // guarded by mutex_: with those the reaper waits for
  bool is_stopping_ = false;    // guarded by mutex_

  std::thread reaper_;  // last: started after the rest exists
};

}  // namespace emberkv
