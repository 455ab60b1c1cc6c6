#include "server/http_limits.h"

#include <fmt/format.h>

namespace emberkv {
namespace {

constexpr size_t kLeastBytes = 1024;

Status AtLeast(const char* name, size_t found, size_t least) {
  if (found >= least) return Status::Ok();
  return InvalidArgument(fmt::format("{} is {}, must be at least {}", name, found, least));
}

Status Positive(const char* name, std::chrono::milliseconds found) {
  if (found.count() > 0) return Status::Ok();
  return InvalidArgument(fmt::format("{} is {} ms, must be more than 0", name, found.count()));
}

}  // namespace

Status HttpLimits::Validate() const {
  EMBERKV_RETURN_IF_ERROR(AtLeast("max_header_bytes", max_header_bytes, kLeastBytes));
  EMBERKV_RETURN_IF_ERROR(AtLeast("max_body_bytes", max_body_bytes, 1));
  EMBERKV_RETURN_IF_ERROR(AtLeast("max_total_body_bytes", max_total_body_bytes, max_body_bytes));
  EMBERKV_RETURN_IF_ERROR(AtLeast("max_connections", max_connections, 1));
  EMBERKV_RETURN_IF_ERROR(AtLeast("max_buffered_bytes", max_buffered_bytes, kLeastBytes));
  EMBERKV_RETURN_IF_ERROR(Positive("header_timeout", header_timeout));
  EMBERKV_RETURN_IF_ERROR(Positive("body_timeout", body_timeout));
  EMBERKV_RETURN_IF_ERROR(Positive("idle_timeout", idle_timeout));
  return Positive("write_timeout", write_timeout);
}

HttpBodyBudget::Lease& HttpBodyBudget::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    ShrinkTo(0);
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void HttpBodyBudget::Lease::ShrinkTo(size_t bytes) {
  if (bytes >= bytes_) return;
  budget_->used_bytes_ -= bytes_ - bytes;
  bytes_ = bytes;
}

bool HttpBodyBudget::Take(size_t bytes, Lease* lease) {
  *lease = Lease();
  size_t used = used_bytes_.load();
  do {
    if (bytes > max_bytes_ - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
  *lease = Lease(this, bytes);
  return true;
}

}  // namespace emberkv
