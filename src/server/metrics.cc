#include "server/metrics.h"

#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "server/state_metrics.h"

namespace emberkv {
namespace {

using prometheus::Counter;
using prometheus::Histogram;

prometheus::Family<Counter>& CounterFamily(prometheus::Registry& registry, const std::string& name,
                                           const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Histogram& SecondsHistogram(prometheus::Registry& registry, const std::string& name, const std::string& help,
                            const Histogram::BucketBoundaries& bounds) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

const Histogram::BucketBoundaries& RequestBounds() {
  static const Histogram::BucketBoundaries bounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,  5,     10,   30,  60,   300};
  return bounds;
}

const Histogram::BucketBoundaries& TokenBounds() {
  static const Histogram::BucketBoundaries bounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                     0.05,   0.1,   0.25,   0.5,   1};
  return bounds;
}

}  // namespace

uint64_t ProcessResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size_pages = 0;
  uint64_t resident_pages = 0;
  if (!(statm >> size_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

Metrics::Metrics()
    : requests_(CounterFamily(registry_, "emberkv_requests_total",
                              "Requests for text that have ended, one line of the ledger each")),
      replies_(
          CounterFamily(registry_, "emberkv_http_replies_total", "Replies on any route, errors included")),
      tokens_(CounterFamily(registry_, "emberkv_tokens_total",
                            "Tokens of requests: prompt = hit + miss; replayed is a part of hit")),
      hit_blocks_(CounterFamily(registry_, "emberkv_hit_blocks_total",
                                "Blocks of prompts by the tier they were found in")),
      store_read_bytes_(CounterFamily(registry_, "emberkv_request_store_read_bytes_total",
                                      "Bytes that requests read from the store")),
      misses_(CounterFamily(registry_, "emberkv_misses_total",
                            "Requests by why the first block that was not found was missing")),
      queue_seconds_(
          SecondsHistogram(registry_, "emberkv_queue_seconds", "From arrival to admission", RequestBounds())),
      ttft_seconds_(SecondsHistogram(registry_, "emberkv_ttft_seconds", "From arrival to the first token",
                                     RequestBounds())),
      tpot_seconds_(SecondsHistogram(registry_, "emberkv_tpot_seconds", "Mean time per token after the first",
                                     TokenBounds())),
      total_seconds_(
          SecondsHistogram(registry_, "emberkv_total_seconds", "From arrival to the end", RequestBounds())) {}

void Metrics::CountRequest(const LedgerLine& line, double tpot_seconds) {
  requests_
      .Add({{"endpoint", line.endpoint}, {"status", std::to_string(line.status)}, {"tenant", line.tenant}})
      .Increment();
  const auto count = [](prometheus::Family<Counter>& family, const prometheus::Labels& labels,
                        int64_t value) { family.Add(labels).Increment(static_cast<double>(value)); };
  const std::pair<const char*, int64_t> kinds[] = {{"prompt", line.prompt_tokens},
                                                   {"hit", line.hit_tokens},
                                                   {"replayed", line.replayed_tokens},
                                                   {"miss", line.miss_tokens},
                                                   {"completion", line.completion_tokens}};
  for (const auto& [kind, tokens] : kinds) count(tokens_, {{"kind", kind}, {"tenant", line.tenant}}, tokens);
  count(hit_blocks_, {{"tier", "resident"}, {"tenant", line.tenant}}, line.resident_blocks);
  count(hit_blocks_, {{"tier", "store"}, {"tenant", line.tenant}}, line.store_blocks);
  count(store_read_bytes_, {{"tenant", line.tenant}}, line.bytes_read);
  if (!line.miss_reason.empty()) count(misses_, {{"reason", line.miss_reason}}, 1);
  queue_seconds_.Observe(static_cast<double>(line.queue_us) * 1e-6);
  if (line.ttft_us > 0) ttft_seconds_.Observe(static_cast<double>(line.ttft_us) * 1e-6);
  if (tpot_seconds > 0) tpot_seconds_.Observe(tpot_seconds);
  total_seconds_.Observe(static_cast<double>(line.total_us) * 1e-6);
}

void Metrics::CountReply(const std::string& route, int status) {
  replies_.Add({{"route", route}, {"status", std::to_string(status)}}).Increment();
}

std::string Metrics::Render(const ServerState& state, const HistorySnapshot& history) const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  std::vector<prometheus::MetricFamily> more = StateFamilies(state, history);
  std::move(more.begin(), more.end(), std::back_inserter(families));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace emberkv
