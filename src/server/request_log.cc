#include "server/request_log.h"

#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace emberkv {
namespace {

int64_t Micros(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e6)); }

void Log(spdlog::logger* log, const LedgerLine& line, const std::string& error) {
  log->info(
      "{} tenant={} {} {} {} prompt={} hit={} miss={} completion={} queue={:.3f}s ttft={:.3f}s total={:.3f}s",
      line.request_id, line.tenant.empty() ? "-" : line.tenant, line.endpoint, line.status,
      line.finish_reason.empty() ? "-" : line.finish_reason, line.prompt_tokens, line.hit_tokens,
      line.miss_tokens, line.completion_tokens, static_cast<double>(line.queue_us) * 1e-6,
      static_cast<double>(line.ttft_us) * 1e-6, static_cast<double>(line.total_us) * 1e-6);
  // What is wrong with a request may quote it; what is wrong with the server does not. A 503 is no fault.
  if (line.status >= 500 && line.status != 503 && !error.empty()) log->warn("{} {}", line.request_id, error);
}

}  // namespace

LedgerLine LineOf(const OpenRequest& request, const std::string& model, const GenerationOutcome& outcome,
                  double queue_seconds) {
  LedgerLine line;
  line.time_us = outcome.arrived_us != 0 ? outcome.arrived_us : request.arrived_us;
  line.request_id = request.id;
  line.tenant = request.tenant;
  line.endpoint = request.endpoint;
  line.model = model;
  line.status = outcome.http_status;
  line.finish_reason = outcome.finish_reason;
  line.prompt_tokens = outcome.prompt_tokens;
  line.hit_tokens = outcome.hit_tokens;
  line.replayed_tokens = outcome.replayed_tokens;
  line.miss_tokens = outcome.miss_tokens();
  line.completion_tokens = outcome.completion_tokens;
  line.resident_blocks = outcome.resident_blocks;
  line.store_blocks = outcome.store_blocks;
  line.bytes_read = static_cast<int64_t>(outcome.bytes_read);
  line.queue_us = Micros(queue_seconds);
  line.restore_us = Micros(outcome.restore_seconds);
  line.ttft_us = Micros(outcome.ttft_seconds);
  line.total_us = Micros(outcome.total_seconds);
  line.replayed_at = static_cast<int64_t>(outcome.replayed_at);
  line.miss_reason = outcome.miss_reason;
  line.cost_pico_usd = outcome.cost.with_cache;
  line.cost_without_cache_pico_usd = outcome.cost.without_cache;
  return line;
}

double TpotSeconds(const GenerationOutcome& outcome) {
  if (outcome.completion_tokens < 2) return 0;
  return outcome.decode_seconds / static_cast<double>(outcome.completion_tokens - 1);
}

std::shared_ptr<OpenRequest> RequestLog::Begin(std::string id, std::string tenant, std::string endpoint,
                                               std::chrono::steady_clock::time_point arrived) {
  auto request = std::make_shared<OpenRequest>();
  request->id = std::move(id);
  request->tenant = std::move(tenant);
  request->endpoint = std::move(endpoint);
  request->arrived = arrived;
  request->arrived_us = sinks_.clock->WallMicros() - Micros(request->seconds_since_arrival());
  const std::lock_guard lock(mutex_);
  open_.emplace(request.get(), request);
  return request;
}

void RequestLog::End(const OpenRequest& request, const GenerationOutcome& outcome, double queue_seconds) {
  const LedgerLine line = LineOf(request, model_, outcome, queue_seconds);
  if (sinks_.ledger != nullptr) sinks_.ledger->Append(LedgerJson(line));
  const double tpot_seconds = TpotSeconds(outcome);
  sinks_.metrics->CountRequest(line, tpot_seconds);
  sinks_.history->Record(line, tpot_seconds);
  Log(sinks_.log, line, outcome.error);
  const std::lock_guard lock(mutex_);
  open_.erase(&request);
}

std::vector<std::shared_ptr<const OpenRequest>> RequestLog::open() const {
  std::vector<std::shared_ptr<const OpenRequest>> requests;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, request] : open_) requests.push_back(request);
  }
  std::ranges::sort(requests, {}, [](const auto& request) { return request->arrived; });
  return requests;
}

}  // namespace emberkv
