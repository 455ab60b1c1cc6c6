#include "server/api_call.h"

#include <fmt/format.h>

#include <cstdint>
#include <random>
#include <utility>

namespace emberkv {
namespace {

// Unique, and no secret.
std::string NewRequestId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}{:08x}", random(), static_cast<uint32_t>(random()));
}

}  // namespace

ApiCall::ApiCall(std::shared_ptr<HttpExchange> exchange, std::string route, Metrics* metrics)
    : exchange_(std::move(exchange)), id_(NewRequestId()), route_(std::move(route)), metrics_(metrics) {}

HttpHeaders ApiCall::WithId(const HttpHeaders& headers) const {
  HttpHeaders all = headers;
  all.emplace_back("X-Request-Id", id_);
  return all;
}

void ApiCall::ReplyJson(int status, std::string body) {
  Reply(status, {{"Content-Type", "application/json"}}, std::move(body));
}

void ApiCall::ReplyError(const ApiError& error, const HttpHeaders& more) {
  HttpHeaders headers = more;
  headers.emplace_back("Content-Type", "application/json");
  Reply(error.http_status, headers, ErrorJson(error));
}

bool ApiCall::Reply(int status, const HttpHeaders& headers, std::string body) {
  metrics_->CountReply(route_, status);
  return exchange_->Reply(status, WithId(headers), std::move(body));
}

bool ApiCall::BeginStream(int status, const HttpHeaders& headers) {
  metrics_->CountReply(route_, status);
  return exchange_->BeginStream(status, WithId(headers));
}

bool ApiCall::Write(std::string_view text) { return exchange_->WriteChunk(text); }

void ApiCall::EndStream() { exchange_->EndStream(); }

}  // namespace emberkv
