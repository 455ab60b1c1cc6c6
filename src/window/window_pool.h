// Checkpoints of encoder windows, in memory, for minutes. A checkpoint spares a request the encoder
// replay after a prefix hit; global KV alone decides the hit, so the pool may forget at any time
// and nobody waits for it.
//
// The key is the hash of the block whose end is the boundary: it covers every token before it,
// their provenance and the tenant, so a checkpoint is never another sequence's. The bytes are the
// engine's own business. The pool has memory and a budget of its own; global pages are not touched
// by it.
//
// Any thread may call. A checkpoint that was given out lives on with its receiver when the pool
// lets it go, beyond the budget for that long. The clock is not owned and outlives the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "layout/identity.h"

namespace emberkv {

struct WindowCheckpoint {
  std::vector<uint8_t> windows;  // encoder window rows
  std::vector<uint8_t> tails;    // compressor tails at the same boundary

  size_t size_bytes() const { return windows.size() + tails.size(); }
};

inline constexpr int64_t kDefaultWindowTtlUs = 5 * 60 * int64_t{1'000'000};

struct WindowPoolOptions {
  size_t budget_bytes = 0;
  int64_t ttl_us = kDefaultWindowTtlUs;  // after the last use
};

struct WindowPoolStats {
  size_t budget_bytes = 0;
  size_t bytes = 0;
  size_t checkpoints = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;  // the expired included
  uint64_t stored = 0;
  uint64_t expired = 0;
  uint64_t evicted = 0;    // for space, before their time
  uint64_t too_large = 0;  // over the whole budget, refused up front
};

class WindowPool {
 public:
  WindowPool(const WindowPoolOptions& options, const Clock* clock);

  // Keeps the checkpoint as the one of `boundary`, in place of an earlier one, and lets go of those
  // used longest ago until it fits. False when it is larger than the budget. `tenant` is whose it is.
  bool Put(const BlockHash& boundary, WindowCheckpoint checkpoint, const Digest& tenant = {});

  // The checkpoint, which then counts as just used; null when there is none any more.
  std::shared_ptr<const WindowCheckpoint> Get(const BlockHash& boundary);

  // Forgets all checkpoints of the tenant; returns how many.
  size_t Erase(const Digest& tenant);

  WindowPoolStats stats() const;

 private:
  struct Entry {
    BlockHash boundary;
    std::shared_ptr<const WindowCheckpoint> checkpoint;
    int64_t last_use_us = 0;
    Digest tenant;
  };
  using Entries = std::list<Entry>;

  // mutex_ is held. What is removed goes to `removed`, to be freed without the lock.
  void RemoveExpired(int64_t now_us, Entries* removed);
  void Remove(Entries::iterator at, Entries* removed);

  // Constant after construction.
  const WindowPoolOptions options_;
  const Clock* const clock_;

  mutable std::mutex mutex_;
  Entries entries_;  // guarded by mutex_: last use first, so the expired are at the end
  std::unordered_map<BlockHash, Entries::iterator, DigestHash> by_boundary_;  // guarded by mutex_
  WindowPoolStats stats_;                                                     // guarded by mutex_
};

// A tenth of the machine's memory: the pool's budget when nobody gives one.
Result<size_t> DefaultWindowBudget();

}  // namespace emberkv
