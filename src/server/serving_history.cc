#include "server/serving_history.h"

#include <algorithm>
#include <cmath>

#include "ledger/price_table.h"

namespace emberkv {
namespace {

// A sum that is full stays where it is.
void AddUpTo(int64_t value, int64_t* sum) {
  if (!AddMoney(value, sum).ok()) return;
}

void Keep(double seconds, std::deque<double>* ring) {
  if (seconds <= 0) return;
  ring->push_back(seconds);
  if (ring->size() > kHistoryLatencies) ring->pop_front();
}

Percentiles PercentilesOf(const std::deque<double>& ring) {
  std::vector<double> sorted(ring.begin(), ring.end());
  std::ranges::sort(sorted);
  // The smallest value that so large a share does not exceed.
  const auto at = [&sorted](double share) {
    if (sorted.empty()) return 0.0;
    const double rank = std::ceil(share * static_cast<double>(sorted.size()));
    return sorted[static_cast<size_t>(rank) - 1];
  };
  return {sorted.size(), at(0.5), at(0.9), at(0.99)};
}

}  // namespace

void TokenTotals::Add(const LedgerLine& line, int block_size) {
  // A hit may end within its last block: what the store did not give was resident.
  const int64_t from_store = std::min(line.hit_tokens, line.store_blocks * block_size);
  ++requests;
  prompt_tokens += line.prompt_tokens;
  resident_hit_tokens += line.hit_tokens - from_store;
  store_hit_tokens += from_store;
  replayed_tokens += line.replayed_tokens;
  miss_tokens += line.miss_tokens;
  completion_tokens += line.completion_tokens;
  AddUpTo(line.cost_pico_usd, &cost_pico_usd);
  AddUpTo(line.cost_without_cache_pico_usd, &cost_without_cache_pico_usd);
}

void ServingHistory::Record(const LedgerLine& line, double tpot_seconds) {
  const int64_t now_us = clock_->WallMicros();
  const int64_t begin_us = now_us - now_us % kHistorySampleMicros;
  const std::lock_guard lock(mutex_);
  totals_.Add(line, block_size_);
  by_tenant_[line.tenant].Add(line, block_size_);
  // A wall clock that was set back counts into the last sample until it has caught up.
  if (samples_.empty() || begin_us > samples_.back().begin_us) {
    samples_.push_back({begin_us, {}});
    if (samples_.size() > kHistorySamples) samples_.pop_front();
  }
  samples_.back().totals.Add(line, block_size_);
  Keep(static_cast<double>(line.ttft_us) * 1e-6, &ttfts_);
  Keep(tpot_seconds, &tpots_);
}

HistorySnapshot ServingHistory::snapshot() const {
  const std::lock_guard lock(mutex_);
  HistorySnapshot snapshot;
  snapshot.totals = totals_;
  snapshot.by_tenant = by_tenant_;
  snapshot.samples.assign(samples_.begin(), samples_.end());
  snapshot.ttft = PercentilesOf(ttfts_);
  snapshot.tpot = PercentilesOf(tpots_);
  return snapshot;
}

}  // namespace emberkv
