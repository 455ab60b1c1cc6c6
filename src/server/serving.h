// What the routes of a server share while it serves: the model, the tenants, the queue, the accounts.
//
// Made by Server::Serve before the first request and kept until the last has ended; any thread may use it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "base/clock.h"
#include "ledger/ledger_writer.h"
#include "ledger/price_table.h"
#include "server/admission.h"
#include "server/metrics.h"
#include "server/request_log.h"
#include "server/served_model.h"
#include "server/serving_history.h"
#include "server/tenants.h"

namespace spdlog {
class logger;
}

namespace emberkv {

// What is there before the model is.
struct ServingFiles {
  std::unique_ptr<Tenants> tenants;
  PriceTable prices;
  std::unique_ptr<LedgerWriter> ledger;  // null: none
  std::unique_ptr<LedgerWriter> trace;   // null: none
  std::shared_ptr<spdlog::logger> log;
  SystemClock clock;
  Metrics metrics;
};

struct Serving {
  Serving(ServingFiles* shared, ServedModel served, const AdmissionOptions& limits, Admission::Start start);

  ServerState State() const;

  ServingFiles* const files;
  const ServedModel model;
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  ServingHistory history;
  RequestLog requests;
  Admission admission;
  std::atomic<bool> is_draining{false};  // admits nothing more
  std::atomic<bool> stops{false};        // running requests end with what they have
};

}  // namespace emberkv
