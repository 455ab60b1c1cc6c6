// What goes wrong with a request, in the shape that OpenAI's API gives errors.
//
// Plain values and pure functions: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace emberkv {

struct ApiError {
  int http_status = 400;
  std::string message;
  std::string param;  // the field that is wrong; empty: none
  std::string code;   // for programs: "model_not_found"; empty: none
};

// A JSON body and its status.
struct ApiReply {
  int http_status = 200;
  std::string body;
};

// A 400 about one field. The message names it too.
ApiError InvalidRequest(std::string param, std::string message, std::string code = "");

// Of a failure of the engine or of parsing: 400, 404, 499 where it was cancelled, 503 where a budget is used up;
// all else is a 500 whose message tells no inside: log the status.
ApiError ErrorOf(const Status& status);

// "invalid_request_error", "authentication_error", "rate_limit_error", "server_error", ...
std::string_view ErrorTypeName(int http_status);

// {"error": {"message", "type", "param", "code"}}
std::string ErrorJson(const ApiError& error);
ApiReply ErrorReply(const ApiError& error);

}  // namespace emberkv
