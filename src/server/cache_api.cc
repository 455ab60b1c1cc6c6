#include "server/cache_api.h"

#include "ledger/utc_time.h"

namespace emberkv {
namespace {

using nlohmann::json;

constexpr double kDollar = 1e-12;

json TotalsJson(const TokenTotals& totals) {
  const int64_t prompt = totals.prompt_tokens;
  const double cost = static_cast<double>(totals.cost_pico_usd) * kDollar;
  const double without = static_cast<double>(totals.cost_without_cache_pico_usd) * kDollar;
  return {
      {"requests", totals.requests},
      {"prompt_tokens", prompt},
      {"hit_tokens", totals.hit_tokens()},
      {"resident_hit_tokens", totals.resident_hit_tokens},
      {"store_hit_tokens", totals.store_hit_tokens},
      {"replayed_tokens", totals.replayed_tokens},
      {"miss_tokens", totals.miss_tokens},
      {"completion_tokens", totals.completion_tokens},
      {"hit_rate", prompt == 0 ? 0 : static_cast<double>(totals.hit_tokens()) / static_cast<double>(prompt)},
      {"cost_usd", cost},
      {"cost_without_cache_usd", without},
      {"saved_usd", without - cost}};
}

json PercentilesJson(const Percentiles& seconds) {
  return {{"count", seconds.count}, {"p50", seconds.p50}, {"p90", seconds.p90}, {"p99", seconds.p99}};
}

json MemoryTier(const PageCacheStats& pages) {
  const size_t page_bytes = pages.pool.page_bytes;
  return {{"capacity_bytes", pages.pool.capacity_bytes()},
          {"used_bytes", pages.pool.pages_in_use * page_bytes},
          {"resident_bytes", pages.resident_bytes},
          {"pinned_bytes", pages.pinned_pages * page_bytes},
          {"write_queue_bytes", pages.writes.queued_pages * page_bytes},
          {"evictions", pages.evictions},
          {"writes_dropped", pages.writes.dropped}};
}

json WindowTier(const WindowPoolStats& windows) {
  return {{"capacity_bytes", windows.budget_bytes},
          {"used_bytes", windows.bytes},
          {"checkpoints", windows.checkpoints},
          {"hits", windows.hits},
          {"misses", windows.misses},
          {"expired", windows.expired},
          {"evicted", windows.evicted}};
}

json StoreTier(const StoreStats& store) {
  json deadlines = json::array();
  for (const DeadlineSum& sum : store.deadlines) {
    deadlines.push_back({{"in_seconds", static_cast<double>(sum.left_us) * 1e-6}, {"pages", sum.pages}, {"bytes", sum.bytes}});
  }
  return {{"capacity_bytes", store.budget_bytes},
          {"used_bytes", store.used_bytes},
          {"promised_bytes", store.promised_bytes},
          {"pages", store.pages},
          {"retention_seconds", static_cast<double>(store.retention_us) * 1e-6},
          {"deadlines", std::move(deadlines)},
          {"quarantined_pages", store.quarantined},
          {"puts_stored", store.puts_stored},
          {"puts_refused", store.puts_refused_full + store.puts_refused_too_large},
          {"puts_refused_tenant_full", store.puts_refused_tenant_full},
          {"puts_failed", store.puts_failed},
          {"get_hits", store.get_hits},
          {"get_corrupt", store.get_corrupt},
          {"get_timeouts", store.get_timeouts},
          {"bytes_written", store.bytes_written},
          {"bytes_read", store.bytes_read},
          {"evicted_expired", store.evicted_expired},
          {"evicted_before_deadline", store.evicted_before_deadline}};
}

json SchedulerJson(const StepSchedulerStats& scheduler) {
  return {{"steps", scheduler.steps},
          {"packed_steps", scheduler.packed_steps},
          {"most_spans", scheduler.most_spans},
          {"decode_rows", scheduler.decode_rows},
          {"prefill_rows", scheduler.prefill_rows},
          {"busy_seconds", scheduler.busy_seconds},
          {"gather_seconds", scheduler.gather_seconds}};
}

json QueueJson(const AdmissionStats& admission) {
  json refused = json::object();
  for (int i = 0; i < kNumRefusalReasons; ++i) {
    refused[RefusalReasonName(static_cast<RefusalReason>(i))] = admission.refused[i];
  }
  return {{"running", admission.running},
          {"queued", admission.queued},
          {"promised_pages", admission.pages_promised},
          {"pool_pages", admission.pool_pages},
          {"refused", std::move(refused)}};
}

json HistoryJson(const HistorySnapshot& history) {
  json samples = json::array();
  for (const HistorySample& sample : history.samples) {
    json row = TotalsJson(sample.totals);
    row["time"] = sample.begin_us / 1'000'000;
    samples.push_back(std::move(row));
  }
  return {{"sample_seconds", kHistorySampleMicros / 1'000'000}, {"samples", std::move(samples)}};
}

const char* PhaseName(GenerationProgress::Phase phase) {
  switch (phase) {
    case GenerationProgress::Phase::kQueued: return "queued";
    case GenerationProgress::Phase::kPrefill: return "prefill";
    case GenerationProgress::Phase::kDecode: return "decode";
    case GenerationProgress::Phase::kDone: return "done";
  }
  return "unknown";
}

}  // namespace

json CacheStatsJson(const std::string& model, const ServerState& state, const HistorySnapshot& history) {
  const EngineCacheStats& caches = state.caches;
  json tiers = {{"memory", MemoryTier(caches.pages)},
                {"windows", WindowTier(caches.windows)},
                {"store", caches.store ? StoreTier(*caches.store) : json()}};
  json tenants = json::array();
  for (const auto& [name, totals] : history.by_tenant) {
    json row = TotalsJson(totals);
    row["tenant"] = name;
    tenants.push_back(std::move(row));
  }
  return {
      {"model", model},
      {"uptime_seconds", state.uptime_seconds},
      {"memory",
       {{"weight_bytes", state.memory.weight_bytes},
        {"scratch_bytes", state.memory.scratch_bytes},
        {"session_bytes", state.memory.session_bytes},
        {"page_bytes", caches.pages.pool.page_bytes},
        {"block_tokens", state.memory.block_size},
        {"process_bytes", state.process_bytes}}},
      {"tiers", std::move(tiers)},
      {"queue", QueueJson(state.admission)},
      {"scheduler", SchedulerJson(state.scheduler)},
      {"latency",
       {{"ttft_seconds", PercentilesJson(history.ttft)}, {"tpot_seconds", PercentilesJson(history.tpot)}}},
      {"totals", TotalsJson(history.totals)},
      {"tenants", std::move(tenants)},
      {"history", HistoryJson(history)}};
}

json CacheUsageJson(const Tenant& caller, const TenantSum& stored, const HistorySnapshot& history) {
  const auto retention_us = static_cast<double>(caller.limits.retention.count());
  const auto totals = history.by_tenant.find(caller.name);
  return {{"object", "cache.usage"},
          {"tenant", caller.name},
          {"store",
           {{"pages", stored.pages},
            {"bytes", stored.bytes},
            {"promised_bytes", stored.promised_bytes},
            {"max_stored_bytes", caller.limits.max_stored_bytes},
            {"retention_seconds", retention_us * 1e-6}}},
          {"totals", TotalsJson(totals == history.by_tenant.end() ? TokenTotals() : totals->second)}};
}

json OpenRequestsJson(std::span<const std::shared_ptr<const OpenRequest>> open, const Tenant& caller) {
  json rows = json::array();
  for (const auto& request : open) {
    if (!caller.is_operator && request->tenant != caller.name) continue;
    const GenerationProgress& progress = request->progress;
    rows.push_back({{"id", request->id},
                    {"tenant", request->tenant},
                    {"endpoint", request->endpoint},
                    {"arrived", UtcText(request->arrived_us)},
                    {"seconds", request->seconds_since_arrival()},
                    {"phase", PhaseName(progress.phase.load())},
                    {"prompt_tokens", progress.prompt_tokens.load()},
                    {"prefilled_tokens", progress.prefilled_tokens.load()},
                    {"output_tokens", progress.output_tokens.load()}});
  }
  return {{"object", "list"}, {"data", std::move(rows)}};
}

}  // namespace emberkv
