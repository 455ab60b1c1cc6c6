// What the server tells about itself as JSON: GET /v1/cache/stats, which the dashboard draws, GET
// /v1/cache/usage and GET /v1/requests.
//
// Pure functions: any thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "server/metrics.h"
#include "server/request_log.h"
#include "server/serving_history.h"

namespace emberkv {

nlohmann::json CacheStatsJson(const std::string& model, const ServerState& state,
                              const HistorySnapshot& history);

// What the caller has in the store and may have there, and what its requests cost since the server started.
nlohmann::json CacheUsageJson(const Tenant& caller, const TenantSum& stored, const HistorySnapshot& history);

// Only the tenant's own, unless it is an operator.
nlohmann::json OpenRequestsJson(std::span<const std::shared_ptr<const OpenRequest>> open,
                                const Tenant& caller);

}  // namespace emberkv
