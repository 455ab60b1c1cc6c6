#include "engine/store_keeper.h"

namespace emberkv {

StoreKeeper::StoreKeeper(LocalStore* store, std::chrono::milliseconds interval, uint64_t scrub_bytes)
    : store_(store), interval_(interval), scrub_bytes_(scrub_bytes), thread_([this] { Main(); }) {}

StoreKeeper::~StoreKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void StoreKeeper::RunRound() {
  store_->Sweep();
  const ScrubReport report = store_->Scrub(scrub_bytes_);
  const std::lock_guard lock(mutex_);
  ++stats_.rounds;
  stats_.scrubbed_pages += report.pages;
  stats_.scrubbed_bytes += report.bytes;
  stats_.corrupt += report.corrupt;
  stats_.full_scrubs += report.is_complete ? 1 : 0;
}

StoreKeeperStats StoreKeeper::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void StoreKeeper::Main() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval_, [this] { return stopping_; })) {
    lock.unlock();
    RunRound();
    lock.lock();
  }
}

}  // namespace emberkv
