#include "server/serving.h"

#include <utility>

namespace emberkv {
namespace {

RequestLogSinks SinksOf(ServingFiles* files, ServingHistory* history) {
  return {files->ledger.get(), &files->metrics, history, files->log.get(), &files->clock};
}

}  // namespace

Serving::Serving(ServingFiles* shared, ServedModel served, const AdmissionOptions& limits,
                 Admission::Start start)
    : files(shared),
      model(std::move(served)),
      history(&shared->clock, model.engine->layout().block_size),
      requests(SinksOf(shared, &history), model.name),
      admission(limits, &shared->clock, std::move(start)) {}

ServerState Serving::State() const {
  ServerState state;
  state.caches = model.engine->cache_stats();
  state.scheduler = model.engine->scheduler_stats();
  state.memory = model.engine->memory_plan();
  state.admission = admission.stats();
  if (files->ledger) state.ledger = files->ledger->stats();
  if (files->trace) state.trace = files->trace->stats();
  state.process_bytes = ProcessResidentBytes();
  state.uptime_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return state;
}

}  // namespace emberkv
