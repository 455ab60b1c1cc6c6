// Asks the durable tier within a time: for pages, into pages of the pool, and for what is there.
//
// A store may hang with its disk, in any call. Therefore threads of the reader ask, and the caller waits no
// longer than it said. What has no answer by then is overdue: its pages stay pinned until the store lets go
// of them, and until then the reader is hung and its owner asks the store for nothing more (the tier's
// breaker). Any thread may call. The store is not owned and outlives this; this ends before the pool does,
// and its end waits for what is overdue, for as long as the disk hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
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

  // Which keys are there; none when the store does not say so in time.
  std::optional<std::vector<bool>> Contains(std::vector<BlockHash> keys, std::chrono::milliseconds timeout);

  bool is_hung() const { return num_overdue() > 0; }
  size_t num_overdue() const;  // questions without an answer in time that are still under way

 private:
  struct Question;

  std::shared_ptr<Question> MakeRead(std::span<const BlockIdentity> blocks,
                                     std::chrono::milliseconds timeout) const;
  // Whether it is answered in time.
  bool Ask(const std::shared_ptr<Question>& question, std::chrono::milliseconds timeout);
  void AskerMain();

  // Constant after construction.
  KvStore* const store_;
  const size_t page_bytes_;

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable answered_;
  // All guarded by mutex_.
  std::deque<std::shared_ptr<Question>> queue_;
  size_t num_idle_ = 0;     // askers that wait for a question
  size_t num_overdue_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> askers_;  // started when first needed
};

}  // namespace emberkv
