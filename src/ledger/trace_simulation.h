// What a machine of a given size would have done with a trace: hits by tier, refused pages, bytes
// on the SSD, cost.
//
// Memory is an LRU of pages. The store admits as the real one does (docs/architecture.md 6): a page
// is promised for `retention` from its last use; a new one is refused when the budget is full of
// promised pages; an expired one goes only when its space is needed. Requests are taken one at a
// time and are done at once; windows, replays, pins and the store's own overhead are not simulated
// (docs/ledger.md).
//
// Owned and used by one thread; the price table outlives it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "ledger/lru_pages.h"
#include "ledger/price_table.h"
#include "ledger/trace_line.h"

namespace emberkv {

struct SimulatedMachine {
  uint64_t page_bytes = 0;  // of a block; above 0
  uint64_t memory_bytes = 0;
  uint64_t store_bytes = 0;
  int64_t retention_us = 0;  // above 0
};

struct SimulationResult {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;  // memory hits + store hits + misses
  int64_t memory_hit_tokens = 0;
  int64_t store_hit_tokens = 0;
  int64_t completion_tokens = 0;

  uint64_t written_pages = 0;    // to the store
  uint64_t refused_pages = 0;    // once for each time a page was offered
  uint64_t evicted_pages = 0;    // expired, for space
  uint64_t held_peak_pages = 0;  // in the store at once
  Cost cost;

  PicoDollars saved() const { return cost.without_cache - cost.with_cache; }

  bool operator==(const SimulationResult&) const = default;
};

class TraceSimulation {
 public:
  TraceSimulation(const SimulatedMachine& machine, const PriceTable* prices);

  // Requests are best given in the order of time; one that is earlier than the one before counts as
  // at the same time. kResourceExhausted when the costs overflow.
  Status Run(const TraceLine& request);

  const SimulatedMachine& machine() const { return machine_; }
  const SimulationResult& result() const { return result_; }

 private:
  enum class Tier { kMemory, kStore, kNone };

  Tier Serve(uint64_t page);
  void Keep(uint64_t page);
  void PutInMemory(uint64_t page);
  void PutInStore(uint64_t page);

  const SimulatedMachine machine_;
  const uint64_t memory_pages_;  // room for so many
  const uint64_t store_pages_;
  const PriceTable* const prices_;

  int64_t now_us_ = 0;
  LruPages memory_;
  LruPages store_;
  SimulationResult result_;
};

}  // namespace emberkv
