#include "ledger/trace_simulation.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <string>

namespace emberkv {

TraceSimulation::TraceSimulation(const SimulatedMachine& machine, const PriceTable* prices)
    : machine_(machine),
      memory_pages_(machine.memory_bytes / machine.page_bytes),
      store_pages_(machine.store_bytes / machine.page_bytes),
      prices_(prices) {
  assert(machine.page_bytes > 0 && machine.retention_us > 0);
}

Status TraceSimulation::Run(const TraceLine& request) {
  now_us_ = std::max(now_us_, request.time_us);
  // Equal ids of two tenants are two pages, as the tenant's salt makes them in a key root.
  const uint64_t tenant = std::hash<std::string>()(request.tenant);
  // A hit stops at least one token before the prompt's end.
  const int64_t may_hit = std::max<int64_t>(request.prompt_tokens - 1, 0) / request.block_size;
  const size_t end = std::min(request.blocks.size(), static_cast<size_t>(may_hit));
  size_t hits = 0;
  for (; hits < end; ++hits) {
    const Tier tier = Serve(request.blocks[hits] ^ tenant);
    if (tier == Tier::kNone) break;
    (tier == Tier::kMemory ? result_.memory_hit_tokens : result_.store_hit_tokens) +=
        request.block_size;
  }
  for (size_t i = hits; i < request.blocks.size(); ++i) Keep(request.blocks[i] ^ tenant);

  ++result_.requests;
  result_.prompt_tokens += request.prompt_tokens;
  result_.completion_tokens += request.completion_tokens;
  const Cost cost =
      CostOf(*prices_, request.time_us, request.prompt_tokens,
             static_cast<int64_t>(hits) * request.block_size, request.completion_tokens);
  EMBERKV_RETURN_IF_ERROR(AddMoney(cost.with_cache, &result_.cost.with_cache));
  return AddMoney(cost.without_cache, &result_.cost.without_cache);
}

// A page served from memory is in use as much as one read from the store: both extend the promise.
TraceSimulation::Tier TraceSimulation::Serve(uint64_t page) {
  const bool is_stored = store_.Touch(page, now_us_);
  if (memory_.Touch(page, now_us_)) return Tier::kMemory;
  if (!is_stored) return Tier::kNone;
  PutInMemory(page);
  return Tier::kStore;
}

void TraceSimulation::Keep(uint64_t page) {
  if (!memory_.Touch(page, now_us_)) PutInMemory(page);
  if (!store_.Touch(page, now_us_)) PutInStore(page);
}

void TraceSimulation::PutInMemory(uint64_t page) {
  if (memory_pages_ == 0) return;
  if (memory_.size() == memory_pages_) memory_.DropOldest();
  memory_.Insert(page, now_us_);
}

// Retention is one span for all pages, so the page used longest ago has the first deadline: if it
// is promised still, all are.
void TraceSimulation::PutInStore(uint64_t page) {
  if (store_.size() == store_pages_) {
    if (store_pages_ == 0 || store_.oldest_use_us() > now_us_ - machine_.retention_us) {
      ++result_.refused_pages;
      return;
    }
    store_.DropOldest();
    ++result_.evicted_pages;
  }
  store_.Insert(page, now_us_);
  ++result_.written_pages;
  result_.held_peak_pages = std::max<uint64_t>(result_.held_peak_pages, store_.size());
}

}  // namespace emberkv
