#include "server/routes.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <nlohmann/json.hpp>

#include "server/cache_api.h"
#include "server/dashboard.h"
#include "server/generation_route.h"
#include "server/text_api.h"

namespace emberkv {
namespace {

using nlohmann::json;
using Call = std::shared_ptr<ApiCall>;

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::chrono::seconds kEraseTimeout{10};

void Send(const Call& call, const ApiReply& reply) { call->ReplyJson(reply.http_status, reply.body); }

void Live(const Call& call, Serving*) { call->ReplyJson(200, R"({"status": "ok"})"); }

void Ready(const Call& call, Serving* serving) {
  if (serving->is_draining) {
    call->ReplyJson(503, R"({"status": "draining"})");
  } else {
    call->ReplyJson(200, R"({"status": "ready"})");
  }
}

void Dashboard(const Call& call, Serving*) {
  call->Reply(200, DashboardHeaders(), std::string(DashboardPage()));
}

void MetricsText(const Call& call, Serving* serving) {
  call->Reply(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
              serving->files->metrics.Render(serving->State(), serving->history.snapshot()));
}

void CacheStats(const Call& call, Serving* serving) {
  call->ReplyJson(
      200, CacheStatsJson(serving->model.name, serving->State(), serving->history.snapshot()).dump());
}

void CacheUsage(const Call& call, Serving* serving) {
  const Tenant& caller = *call->tenant();
  const TenantSum stored = serving->model.engine->StoredBy(caller.name);
  call->ReplyJson(200, CacheUsageJson(caller, stored, serving->history.snapshot()).dump());
}

void EraseCache(const Call& call, Serving* serving) {
  const std::string& tenant = call->tenant()->name;
  const Result<uint64_t> erased = serving->model.engine->EraseTenant(tenant, kEraseTimeout);
  if (!erased.ok()) {
    serving->files->log->warn("{} erase of tenant '{}': {}", call->id(), tenant, erased.status().message());
    call->ReplyError(ErrorOf(erased.status()));
    return;
  }
  serving->files->log->info("{} erased tenant '{}': {} pages left the store", call->id(), tenant, *erased);
  call->ReplyJson(200, json{{"object", "cache.erased"}, {"tenant", tenant}, {"store_pages", *erased}}.dump());
}

void OpenRequests(const Call& call, Serving* serving) {
  call->ReplyJson(200, OpenRequestsJson(serving->requests.open(), *call->tenant()).dump());
}

void Chat(const Call& call, Serving* serving) { AnswerGeneration(Endpoint::kChat, call, serving); }
void Completion(const Call& call, Serving* serving) {
  AnswerGeneration(Endpoint::kCompletion, call, serving);
}
void Models(const Call& call, Serving* serving) { Send(call, ModelsReply(serving->model)); }
void OneModel(const Call& call, Serving* serving) {
  const std::string_view path = call->request().path;
  Send(call, ModelReply(path.substr(kModelPrefix.size()), serving->model));
}
void Tokenize(const Call& call, Serving* serving) {
  Send(call, TokenizeReply(call->request().body, serving->model));
}
void Detokenize(const Call& call, Serving* serving) {
  Send(call, DetokenizeReply(call->request().body, serving->model));
}
void Explain(const Call& call, Serving* serving) {
  Send(call, ExplainReply(call->request().body, serving->model, call->tenant()->name));
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", Access::kTenant, false, &Chat},
    {"POST", "/v1/completions", Access::kTenant, false, &Completion},
    {"GET", "/v1/models", Access::kTenant, false, &Models},
    {"GET", kModelPrefix, Access::kTenant, false, &OneModel},
    {"POST", "/tokenize", Access::kTenant, false, &Tokenize},
    {"POST", "/detokenize", Access::kTenant, false, &Detokenize},
    {"POST", "/v1/cache/explain", Access::kTenant, false, &Explain},
    {"GET", "/v1/cache/usage", Access::kTenant, false, &CacheUsage},
    {"DELETE", "/v1/cache", Access::kTenant, false, &EraseCache},
    {"GET", "/v1/requests", Access::kTenant, false, &OpenRequests},
    {"GET", "/v1/cache/stats", Access::kOperator, false, &CacheStats},
    {"GET", "/metrics", Access::kOperator, false, &MetricsText},
    {"GET", "/", Access::kOpen, true, &Dashboard},
    {"GET", "/health", Access::kOpen, true, &Live},
    {"GET", "/health/ready", Access::kOpen, true, &Ready},
};

bool Leads(const Route& route, std::string_view path) {
  if (route.path == kModelPrefix) return path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix);
  return route.path == path;
}

}  // namespace

RouteMatch FindRoute(std::string_view method, std::string_view path) {
  RouteMatch match;
  for (const Route& route : kRoutes) {
    if (!Leads(route, path)) continue;
    if (route.method == method || (method == "HEAD" && route.method == "GET")) return {&route, ""};
    if (!match.allowed_methods.empty()) match.allowed_methods += ", ";
    match.allowed_methods += route.method == "GET" ? "GET, HEAD" : std::string(route.method);
  }
  return match;
}

}  // namespace emberkv
