#include "base/status.h"

namespace emberkv {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kNotFound: return "not found";
    case StatusCode::kDataLoss: return "data loss";
    case StatusCode::kResourceExhausted: return "resource exhausted";
    case StatusCode::kCancelled: return "cancelled";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kUnimplemented: return "not built";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

Status Status::WithContext(const std::string& context) const {
  return ok() ? *this : Status(code_, context + ": " + message_);
}

std::string Status::ToString() const {
  return ok() ? "ok" : std::string(StatusCodeName(code_)) + ": " + message_;
}

Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status DataLoss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
Status ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
Status Cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
Status Unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
Status Unimplemented(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}
Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace emberkv
