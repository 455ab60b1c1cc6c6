// The server's numbers for Prometheus.
//
// What is counted per request comes from its ledger line, so that counters and ledger add up to the same.
// What the engine and the queue count themselves is read when somebody asks. Any thread may call anything.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <optional>
#include <string>

#include "engine/engine.h"
#include "ledger/ledger_line.h"
#include "ledger/ledger_writer.h"
#include "server/admission.h"
#include "server/serving_history.h"

namespace emberkv {

// The state of all parts at one moment.
struct ServerState {
  EngineCacheStats caches;
  StepSchedulerStats scheduler;
  MemoryPlan memory;
  AdmissionStats admission;
  std::optional<LedgerWriterStats> ledger;  // none when the server writes none
  std::optional<LedgerWriterStats> trace;
  uint64_t process_bytes = 0;  // resident memory
  double uptime_seconds = 0;
};

// Of this process; 0 when the system does not tell.
uint64_t ProcessResidentBytes();

class Metrics {
 public:
  Metrics();

  void CountRequest(const LedgerLine& line, double tpot_seconds);

  // Every reply to anything; `route` is one of the server's, so that there are few.
  void CountReply(const std::string& route, int status);

  // In Prometheus' text form.
  std::string Render(const ServerState& state, const HistorySnapshot& history) const;

 private:
  // Constructed in order: the families belong to the registry.
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& replies_;
  prometheus::Family<prometheus::Counter>& tokens_;
  prometheus::Family<prometheus::Counter>& hit_blocks_;
  prometheus::Family<prometheus::Counter>& store_read_bytes_;
  prometheus::Family<prometheus::Counter>& misses_;
  prometheus::Histogram& queue_seconds_;
  prometheus::Histogram& ttft_seconds_;
  prometheus::Histogram& tpot_seconds_;
  prometheus::Histogram& total_seconds_;
};

}  // namespace emberkv
