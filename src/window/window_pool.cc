#include "window/window_pool.h"

#include <utility>

#include "base/machine_memory.h"

namespace emberkv {

WindowPool::WindowPool(const WindowPoolOptions& options, const Clock* clock)
    : options_(options), clock_(clock) {}

bool WindowPool::Put(const BlockHash& boundary, WindowCheckpoint checkpoint, const Digest& tenant) {
  const size_t bytes = checkpoint.size_bytes();
  auto kept = std::make_shared<const WindowCheckpoint>(std::move(checkpoint));
  Entries removed;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > options_.budget_bytes) {
    ++stats_.too_large;
    return false;
  }
  const int64_t now_us = clock_->MonotonicMicros();
  const auto earlier = by_boundary_.find(boundary);
  if (earlier != by_boundary_.end()) Remove(earlier->second, &removed);
  RemoveExpired(now_us, &removed);
  while (stats_.bytes + bytes > options_.budget_bytes) {
    Remove(std::prev(entries_.end()), &removed);
    ++stats_.evicted;
  }
  entries_.push_front({boundary, std::move(kept), now_us, tenant});
  by_boundary_.emplace(boundary, entries_.begin());
  stats_.bytes += bytes;
  ++stats_.stored;
  return true;
}

std::shared_ptr<const WindowCheckpoint> WindowPool::Get(const BlockHash& boundary) {
  Entries removed;
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now_us = clock_->MonotonicMicros();
  RemoveExpired(now_us, &removed);
  const auto at = by_boundary_.find(boundary);
  if (at == by_boundary_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  at->second->last_use_us = now_us;
  entries_.splice(entries_.begin(), entries_, at->second);
  return at->second->checkpoint;
}

size_t WindowPool::Erase(const Digest& tenant) {
  Entries removed;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto entry = at++;
    if (entry->tenant == tenant) Remove(entry, &removed);
  }
  return removed.size();
}

WindowPoolStats WindowPool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  WindowPoolStats stats = stats_;
  stats.budget_bytes = options_.budget_bytes;
  stats.checkpoints = entries_.size();
  return stats;
}

void WindowPool::RemoveExpired(int64_t now_us, Entries* removed) {
  while (!entries_.empty() && now_us - entries_.back().last_use_us >= options_.ttl_us) {
    Remove(std::prev(entries_.end()), removed);
    ++stats_.expired;
  }
}

void WindowPool::Remove(Entries::iterator at, Entries* removed) {
  stats_.bytes -= at->checkpoint->size_bytes();
  by_boundary_.erase(at->boundary);
  removed->splice(removed->end(), entries_, at);
}

Result<size_t> DefaultWindowBudget() {
  const uint64_t machine = MachineMemoryBytes();
  if (machine == 0) {
    return Unavailable("the system does not tell its memory size; give the window pool a budget");
  }
  return static_cast<size_t>(machine / 10);
}

}  // namespace emberkv
