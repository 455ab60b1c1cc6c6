// Looks after a store in the background while an engine has it open: makes room ahead of need and re-reads
// everything slowly, so that a page that has gone bad is found before it is wanted.
//
// Owns one thread that sleeps nearly always. The store outlives the keeper. Any thread may ask for the
// counts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "store/local_store.h"

namespace emberkv {

struct StoreKeeperStats {
  uint64_t rounds = 0;
  uint64_t scrubbed_pages = 0;
  uint64_t scrubbed_bytes = 0;
  uint64_t corrupt = 0;      // found and quarantined by scrubbing
  uint64_t full_scrubs = 0;  // times the last page was reached
};

class StoreKeeper {
 public:
  // A round every `interval` reads at most `scrub_bytes`: the defaults re-read 500 GB in a month.
  static constexpr std::chrono::seconds kInterval{60};
  static constexpr uint64_t kScrubBytes = uint64_t{12} << 20;

  StoreKeeper(LocalStore* store, std::chrono::milliseconds interval = kInterval,
              uint64_t scrub_bytes = kScrubBytes);
  ~StoreKeeper();
  StoreKeeper(const StoreKeeper&) = delete;
  StoreKeeper& operator=(const StoreKeeper&) = delete;

  // One round now, on the calling thread.
  void RunRound();

  StoreKeeperStats stats() const;

 private:
  void Main();

  // Constant after construction.
  LocalStore* const store_;
  const std::chrono::milliseconds interval_;
  const uint64_t scrub_bytes_;

  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;   // guarded by mutex_
  StoreKeeperStats stats_;  // guarded by mutex_

  std::thread thread_;  // last: starts when the rest exists
};

}  // namespace emberkv
