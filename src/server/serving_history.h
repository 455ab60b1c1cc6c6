// What the server did lately and in all: tokens by where they came from, over time and by tenant, latency
// percentiles, and what the cache saved. Behind the dashboard and GET /v1/cache/stats.
//
// Any thread may call anything. Memory is bounded: a ring of samples, a ring of latencies, one row a tenant.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ledger/ledger_line.h"

namespace emberkv {

struct TokenTotals {
  uint64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t resident_hit_tokens = 0;
  int64_t store_hit_tokens = 0;
  int64_t replayed_tokens = 0;
  int64_t miss_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cost_pico_usd = 0;
  int64_t cost_without_cache_pico_usd = 0;

  int64_t hit_tokens() const { return resident_hit_tokens + store_hit_tokens; }
  void Add(const LedgerLine& line, int block_size);
};

struct HistorySample {
  int64_t begin_us = 0;  // wall time
  TokenTotals totals;
};

// Seconds; 0 where nothing was measured.
struct Percentiles {
  size_t count = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

struct HistorySnapshot {
  TokenTotals totals;
  std::map<std::string, TokenTotals> by_tenant;
  std::vector<HistorySample> samples;  // oldest first; times in which nothing happened have none
  Percentiles ttft;                    // of the last requests that got that far
  Percentiles tpot;
};

inline constexpr int64_t kHistorySampleMicros = 10'000'000;
inline constexpr size_t kHistorySamples = 360;  // an hour without a pause
inline constexpr size_t kHistoryLatencies = 1024;

class ServingHistory {
 public:
  ServingHistory(const Clock* clock, int block_size) : clock_(clock), block_size_(block_size) {}

  // `tpot_seconds`: 0 when the answers had no second token.
  void Record(const LedgerLine& line, double tpot_seconds);

  HistorySnapshot snapshot() const;

 private:
  const Clock* const clock_;
  const int block_size_;

  mutable std::mutex mutex_;
  TokenTotals totals_;  // guarded by mutex_, as all that follows
  std::map<std::string, TokenTotals> by_tenant_;
  std::deque<HistorySample> samples_;
  std::deque<double> ttfts_;
  std::deque<double> tpots_;
};

}  // namespace emberkv
