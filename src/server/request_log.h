// Every request for text from arrival to its last word: which ones are open now, and, when one ends, its line
// in the ledger, the metrics, the history and the log. All of them are told from the same line, so their sums
// agree. No text of a prompt or an answer passes through here.
//
// Any thread may call anything. What it writes to is not owned and outlives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "ledger/ledger_line.h"
#include "ledger/ledger_writer.h"
#include "server/generation.h"
#include "server/metrics.h"
#include "server/serving_history.h"

namespace spdlog {
class logger;
}

namespace emberkv {

struct OpenRequest {
  std::string id;
  std::string tenant;
  std::string endpoint;
  std::chrono::steady_clock::time_point arrived;
  int64_t arrived_us = 0;  // wall time
  GenerationProgress progress;

  double seconds_since_arrival() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - arrived).count();
  }
};

struct RequestLogSinks {
  LedgerWriter* ledger = nullptr;  // may be null
  Metrics* metrics = nullptr;
  ServingHistory* history = nullptr;
  spdlog::logger* log = nullptr;
  const Clock* clock = nullptr;
};

// The ledger's line of a request that has ended.
LedgerLine LineOf(const OpenRequest& request, const std::string& model, const GenerationOutcome& outcome,
                  double queue_seconds);

// Mean time per token after the first, of all answers together; 0 when there is none.
double TpotSeconds(const GenerationOutcome& outcome);

class RequestLog {
 public:
  RequestLog(const RequestLogSinks& sinks, std::string model) : sinks_(sinks), model_(std::move(model)) {}

  std::shared_ptr<OpenRequest> Begin(std::string id, std::string tenant, std::string endpoint,
                                     std::chrono::steady_clock::time_point arrived);
  void End(const OpenRequest& request, const GenerationOutcome& outcome, double queue_seconds);

  // Those that have not ended, in order of arrival.
  std::vector<std::shared_ptr<const OpenRequest>> open() const;

 private:
  const RequestLogSinks sinks_;
  const std::string model_;

  mutable std::mutex mutex_;
  std::map<const OpenRequest*, std::shared_ptr<const OpenRequest>> open_;  // guarded by mutex_
};

}  // namespace emberkv
