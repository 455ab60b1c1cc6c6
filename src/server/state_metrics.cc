#include "server/state_metrics.h"

#include <string>
#include <utility>

namespace emberkv {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Gathers samples; those of one name stand together.
class Families {
 public:
  template <typename T>
  void Gauge(const char* name, const char* help, T value, Labels labels = {}) {
    Sample(name, help, MetricType::Gauge, std::move(labels)).gauge.value = static_cast<double>(value);
  }
  template <typename T>
  void Counter(const char* name, const char* help, T value, Labels labels = {}) {
    Sample(name, help, MetricType::Counter, std::move(labels)).counter.value = static_cast<double>(value);
  }

  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  ClientMetric& Sample(const char* name, const char* help, MetricType type, Labels labels) {
    if (families_.empty() || families_.back().name != name) families_.push_back({name, help, type, {}});
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  std::vector<MetricFamily> families_;
};

void AddMemory(const ServerState& state, Families* out) {
  const PageCacheStats& pages = state.caches.pages;
  const size_t page_bytes = pages.pool.page_bytes;
  const char* const name = "emberkv_memory_bytes";
  const char* const help = "Memory by what it holds; resident and pinned pages are parts of the pool's use";
  out->Gauge(name, help, pages.pool.capacity_bytes(), {{"part", "pool_capacity"}});
  out->Gauge(name, help, pages.pool.pages_in_use * page_bytes, {{"part", "pool_used"}});
  out->Gauge(name, help, pages.resident_bytes, {{"part", "resident"}});
  out->Gauge(name, help, pages.pinned_pages * page_bytes, {{"part", "pinned"}});
  out->Gauge(name, help, pages.writes.queued_pages * page_bytes, {{"part", "write_queue"}});
  out->Gauge(name, help, state.caches.windows.bytes, {{"part", "windows"}});
  out->Gauge(name, help, state.caches.windows.budget_bytes, {{"part", "windows_budget"}});
  out->Gauge(name, help, state.memory.weight_bytes, {{"part", "weights"}});
  out->Gauge(name, help, state.memory.scratch_bytes, {{"part", "scratch"}});
  out->Gauge("emberkv_session_bytes", "Windows and tails of one sequence, whatever its length",
             state.memory.session_bytes);
  out->Gauge("emberkv_page_bytes", "Global KV of one block", page_bytes);
  out->Gauge("emberkv_block_tokens", "Tokens of one block", state.memory.block_size);
  out->Gauge("emberkv_process_resident_bytes", "Resident memory of the process", state.process_bytes);
}

void AddPageCache(const PageCacheStats& pages, Families* out) {
  out->Counter("emberkv_page_evictions_total", "Pages that left memory for others", pages.evictions);
  out->Counter("emberkv_page_seals_total", "Complete blocks that became resident", pages.seals);
  out->Counter("emberkv_page_unequal_seals_total", "Equal hashes with unequal bytes; stays 0",
               pages.unequal_seals);
  out->Counter("emberkv_lookup_blocks_total", "Blocks that were looked up", pages.blocks_looked_up);
  for (size_t i = 0; i < kNumMissReasons; ++i) {
    out->Counter("emberkv_lookups_total", "Lookups by why they ended; none: all was found",
                 pages.miss_reasons[i], {{"reason", MissReasonName(static_cast<MissReason>(i))}});
  }
  out->Counter("emberkv_write_dropped_pages_total",
               "Complete blocks that were not written: the queue was full", pages.writes.dropped);
  out->Gauge("emberkv_write_queued_pages", "Complete blocks that wait to be written",
             pages.writes.queued_pages);
  out->Gauge("emberkv_overdue_reads", "Reads of the store past their deadline", pages.overdue_reads);
}

void AddWindows(const WindowPoolStats& windows, Families* out) {
  out->Gauge("emberkv_window_checkpoints", "Encoder windows that are alive", windows.checkpoints);
  out->Counter("emberkv_window_lookups_total", "Lookups of encoder windows", windows.hits,
               {{"result", "hit"}});
  out->Counter("emberkv_window_lookups_total", "Lookups of encoder windows", windows.misses,
               {{"result", "miss"}});
  out->Counter("emberkv_window_removed_total", "Encoder windows that went", windows.expired,
               {{"why", "expired"}});
  out->Counter("emberkv_window_removed_total", "Encoder windows that went", windows.evicted,
               {{"why", "evicted"}});
}

void AddStore(const StoreStats& store, Families* out) {
  const char* const bytes = "emberkv_store_bytes";
  const char* const help = "The local store's disk space";
  out->Gauge(bytes, help, store.budget_bytes, {{"part", "budget"}});
  out->Gauge(bytes, help, store.used_bytes, {{"part", "used"}});
  out->Gauge(bytes, help, store.promised_bytes, {{"part", "promised"}});
  out->Gauge("emberkv_store_pages", "Pages that are stored", store.pages);
  out->Gauge("emberkv_store_quarantined_pages", "Pages that failed verification", store.quarantined);
  const std::pair<const char*, uint64_t> puts[] = {{"stored", store.puts_stored},
                                                   {"already_there", store.puts_already_there},
                                                   {"refused_full", store.puts_refused_full},
                                                   {"refused_tenant_full", store.puts_refused_tenant_full},
                                                   {"refused_too_large", store.puts_refused_too_large},
                                                   {"failed", store.puts_failed}};
  for (const auto& [outcome, count] : puts) {
    out->Counter("emberkv_store_puts_total", "Pages offered to the store", count, {{"outcome", outcome}});
  }
  const std::pair<const char*, uint64_t> gets[] = {{"hit", store.get_hits},
                                                   {"miss", store.get_misses},
                                                   {"corrupt", store.get_corrupt},
                                                   {"timeout", store.get_timeouts},
                                                   {"failed", store.get_failed}};
  for (const auto& [outcome, count] : gets) {
    out->Counter("emberkv_store_gets_total", "Pages asked of the store", count, {{"outcome", outcome}});
  }
  out->Counter("emberkv_store_written_bytes_total", "Payloads written", store.bytes_written);
  out->Counter("emberkv_store_read_bytes_total", "Payloads of hits", store.bytes_read);
  out->Counter("emberkv_store_evicted_total", "Pages whose space was taken after their deadline",
               store.evicted_expired);
  out->Counter("emberkv_store_evicted_before_deadline_total", "Broken promises; stays 0",
               store.evicted_before_deadline);
}

void AddQueue(const ServerState& state, Families* out) {
  const AdmissionStats& admission = state.admission;
  out->Gauge("emberkv_running_requests", "Requests that run", admission.running);
  out->Gauge("emberkv_queued_requests", "Requests that wait for admission", admission.queued);
  out->Gauge("emberkv_promised_pages", "Pages that running requests may come to hold",
             admission.pages_promised);
  for (int i = 0; i < kNumRefusalReasons; ++i) {
    out->Counter("emberkv_refusals_total", "Requests that were not admitted", admission.refused[i],
                 {{"reason", RefusalReasonName(static_cast<RefusalReason>(i))}});
  }
  const StepSchedulerStats& scheduler = state.scheduler;
  out->Counter("emberkv_steps_total", "Steps of the model", scheduler.steps);
  out->Counter("emberkv_packed_steps_total", "Steps that computed for several sequences",
               scheduler.packed_steps);
  out->Counter("emberkv_step_rows_total", "Rows computed", scheduler.decode_rows, {{"kind", "decode"}});
  out->Counter("emberkv_step_rows_total", "Rows computed", scheduler.prefill_rows, {{"kind", "prefill"}});
  out->Counter("emberkv_step_seconds_total", "Where the model's time went", scheduler.busy_seconds,
               {{"state", "busy"}});
  out->Counter("emberkv_step_seconds_total", "Where the model's time went", scheduler.gather_seconds,
               {{"state", "gather"}});
}

void AddLedger(const ServerState& state, Families* out) {
  const std::pair<const char*, const std::optional<LedgerWriterStats>*> files[] = {{"ledger", &state.ledger},
                                                                                   {"trace", &state.trace}};
  for (const auto& [file, stats] : files) {
    if (*stats)
      out->Counter("emberkv_lines_written_total", "Lines of a file", (*stats)->lines_written,
                   {{"file", file}});
  }
  for (const auto& [file, stats] : files) {
    if (*stats)
      out->Counter("emberkv_lines_lost_total", "Lines that a disk refused", (*stats)->lines_lost,
                   {{"file", file}});
  }
}

void AddMoneyAndTime(const ServerState& state, const HistorySnapshot& history, Families* out) {
  constexpr double kDollar = 1e-12;
  for (const auto& [tenant, totals] : history.by_tenant) {
    out->Counter("emberkv_cost_usd_total", "Cost at the price table, from the ledger's exact sum",
                 static_cast<double>(totals.cost_pico_usd) * kDollar, {{"tenant", tenant}});
  }
  for (const auto& [tenant, totals] : history.by_tenant) {
    out->Counter("emberkv_cost_without_cache_usd_total",
                 "What it would have been with every prompt token a miss",
                 static_cast<double>(totals.cost_without_cache_pico_usd) * kDollar, {{"tenant", tenant}});
  }
  out->Gauge("emberkv_uptime_seconds", "Since the server started", state.uptime_seconds);
}

}  // namespace

std::vector<MetricFamily> StateFamilies(const ServerState& state, const HistorySnapshot& history) {
  Families out;
  AddMemory(state, &out);
  AddPageCache(state.caches.pages, &out);
  AddWindows(state.caches.windows, &out);
  if (state.caches.store) AddStore(*state.caches.store, &out);
  AddQueue(state, &out);
  AddLedger(state, &out);
  AddMoneyAndTime(state, history, &out);
  return out.Take();
}

}  // namespace emberkv
