// Status and Result<T>: expected failures are values.
//
// A Status is OK or a code with a message a person can act on: it names the field or file, what was
// found and what is allowed. Result<T> holds a T or a Status that is not OK. Both are plain values:
// any thread may own one; concurrent access to the same object needs outside locking.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace emberkv {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller or its input is wrong: bad config, file or request
  kNotFound,           // a file, tensor or page that does not exist
  kDataLoss,           // bytes that are there but are not what they claim to be
  kResourceExhausted,  // a budget is used up: pages, memory, context
  kCancelled,          // the caller asked to stop
  kUnavailable,        // the system refused: I/O error, permission
  kUnimplemented,      // known, valid and not built
  kInternal,           // a broken promise of our own
};

// "invalid argument", "not found", ...
const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure with `context` and ": " in front of the message. OK stays OK.
  Status WithContext(const std::string& context) const;

  // "invalid argument: text_config.head_dim is 500, ..."
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status DataLoss(std::string message);
Status ResourceExhausted(std::string message);
Status Cancelled(std::string message);
Status Unavailable(std::string message);
Status Unimplemented(std::string message);
Status Internal(std::string message);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & {
    assert(ok());
    return *value_;
  }
  const T& value() const& {
    assert(ok());
    return *value_;
  }
  T&& value() && {
    assert(ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace emberkv

// Returns from the enclosing function when `expr` (a Status) is not OK.
#define EMBERKV_RETURN_IF_ERROR(expr)                        \
  do {                                                       \
    ::emberkv::Status emberkv_status_ = (expr);              \
    if (!emberkv_status_.ok()) return emberkv_status_;       \
  } while (false)

#define EMBERKV_CONCAT_INNER_(a, b) a##b
#define EMBERKV_CONCAT_(a, b) EMBERKV_CONCAT_INNER_(a, b)

// EMBERKV_ASSIGN_OR_RETURN(auto x, F()): x = value of the Result, or returns its Status.
#define EMBERKV_ASSIGN_OR_RETURN(lhs, expr) \
  EMBERKV_ASSIGN_OR_RETURN_(EMBERKV_CONCAT_(emberkv_result_, __LINE__), lhs, expr)
#define EMBERKV_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.ok()) return result.status();          \
  lhs = std::move(result).value()
