#include "server/openai_error.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace emberkv {
namespace {

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kCancelled:
      return 499;
    case StatusCode::kResourceExhausted:
      return 503;
    default:
      return 500;
  }
}

}  // namespace

ApiError InvalidRequest(std::string param, std::string message, std::string code) {
  return {400, std::move(message), std::move(param), std::move(code)};
}

ApiError ErrorOf(const Status& status) {
  const int http_status = HttpStatusOf(status.code());
  if (http_status == 500) return {500, "the server failed at this request; its log has the reason", "", ""};
  return {http_status, status.message(), "", ""};
}

std::string_view ErrorTypeName(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 408:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string ErrorJson(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json json;
  json["error"]["message"] = error.message;
  json["error"]["type"] = ErrorTypeName(error.http_status);
  json["error"]["param"] = text_or_null(error.param);
  json["error"]["code"] = text_or_null(error.code);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

ApiReply ErrorReply(const ApiError& error) { return {error.http_status, ErrorJson(error)}; }

}  // namespace emberkv
