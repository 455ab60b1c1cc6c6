// What the server tells about itself as JSON: GET /v1/cache/stats, which the dashboard draws, and GET
// /v1/requests.
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

// What the caller has in the store, and what it may have there.
nlohmann::json TenantJson(const Tenant& caller, const TenantSum& stored);

// Only the tenant's own, unless it is an operator.
nlohmann::json OpenRequestsJson(std::span<const std::shared_ptr<const OpenRequest>> open,
                                const Tenant& caller);

}  // namespace emberkv
