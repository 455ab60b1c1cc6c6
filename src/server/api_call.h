// One request of the API on its way to an answer: who asks, on which route, and the reply, which carries the
// request's id and is counted once.
//
// Held by shared_ptr by whoever answers; one thread at a time, but for gone(). It keeps the exchange alive.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_exchange.h"
#include "server/metrics.h"
#include "server/openai_error.h"
#include "server/reply_channel.h"
#include "server/tenants.h"

namespace emberkv {

class ApiCall final : public ReplyChannel {
 public:
  // `route`: of the server's table, "other" for what is not in it.
  ApiCall(std::shared_ptr<HttpExchange> exchange, std::string route, Metrics* metrics);

  const HttpRequest& request() const { return exchange_->request(); }
  const std::string& id() const { return id_; }
  const std::string& route() const { return route_; }
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }

  const std::shared_ptr<const Tenant>& tenant() const { return tenant_; }
  void set_tenant(std::shared_ptr<const Tenant> tenant) { tenant_ = std::move(tenant); }

  void ReplyJson(int status, std::string body);
  void ReplyError(const ApiError& error, const HttpHeaders& more = {});

  bool Reply(int status, const HttpHeaders& headers, std::string body) override;
  bool BeginStream(int status, const HttpHeaders& headers) override;
  bool Write(std::string_view text) override;
  void EndStream() override;
  bool HasRoom(size_t bytes) const override { return exchange_->HasRoom(bytes); }
  const std::atomic<bool>& gone() const override { return exchange_->gone(); }

 private:
  HttpHeaders WithId(const HttpHeaders& headers) const;

  const std::shared_ptr<HttpExchange> exchange_;
  const std::string id_;
  const std::string route_;
  const std::chrono::steady_clock::time_point arrived_ = std::chrono::steady_clock::now();
  Metrics* const metrics_;
  std::shared_ptr<const Tenant> tenant_;
};

}  // namespace emberkv
