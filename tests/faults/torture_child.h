// The process that is killed: works on a store and writes down what the store acknowledged.
//
// The journal is a file of lines, each written by one call, so that a kill leaves whole lines:
//   T time           the clock is about to show this (microseconds)
//   S page time      the page was stored
//   H page time      the page was served or found there again
//   F                a fault was injected
//   W                wrong bytes were served
//   E tenant         the tenant's pages are about to be erased
//   e tenant         they were
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "store/local_store.h"

namespace emberkv {

inline constexpr size_t kTorturePayloadBytes = 8000;
inline constexpr std::chrono::microseconds kTortureRetention = std::chrono::hours(72);
inline constexpr uint64_t kTortureTenants = 8;
inline constexpr uint64_t kTortureTenantPages = 4;

inline uint64_t TortureTenantOf(uint64_t page) { return page % kTortureTenants; }
// Two have a retention of their own, and one a limit of a few pages.
inline StoreLimits TortureLimitsOf(uint64_t tenant) {
  if (tenant == 1) return {.retention = kTortureRetention * 2};
  if (tenant == 2) return {.retention = kTortureRetention / 2};
  if (tenant == 3) return {.max_bytes = kTortureTenantPages * RecordBytes(128, kTorturePayloadBytes)};
  return {};
}
LocalStoreOptions TortureOptions(const std::string& directory);

struct TortureOrders {
  std::string directory;
  std::string journal;
  uint64_t seed = 0;
  uint64_t first_page = 0;  // numbers of new pages count up from here
  int64_t clock_us = 0;
  std::string kill_at;  // a failpoint, or empty
  int kill_nth = 1;     // the process dies when it passes the point for this time
};

// Returns when the work is done without passing the point; the process's exit code.
int RunTortureChild(const TortureOrders& orders);

}  // namespace emberkv
