// The state of the caches, the queue and the scheduler as metric families of Prometheus.
//
// A pure function; any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "server/metrics.h"

namespace emberkv {

std::vector<prometheus::MetricFamily> StateFamilies(const ServerState& state, const HistorySnapshot& history);

}  // namespace emberkv
