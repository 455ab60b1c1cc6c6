// What one client, and all together, may cost the HTTP server: bytes, connections, time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>

#include "base/status.h"

namespace emberkv {

struct HttpLimits {
  size_t max_header_bytes = size_t{16} << 10;        // beyond: 431
  size_t max_body_bytes = size_t{16} << 20;          // beyond: 413
  size_t max_total_body_bytes = size_t{256} << 20;   // of all requests that are alive; beyond: 503
  size_t max_connections = 2048;                     // beyond: 503, and the connection ends
  size_t max_buffered_bytes = size_t{256} << 10;     // of a stream, written and not yet taken by the system
  std::chrono::milliseconds header_timeout{10'000};  // from a request's first byte to its last header: 408
  std::chrono::milliseconds body_timeout{60'000};    // for the whole body: 408
  std::chrono::milliseconds idle_timeout{75'000};    // between the requests of a connection
  // For the next 64 KiB of an answer to leave, and for room in a stream's buffer: the client is given up.
  std::chrono::milliseconds write_timeout{30'000};

  Status Validate() const;
};

// Bytes of request bodies that are alive. Thread-safe; outlives its leases.
class HttpBodyBudget {
 public:
  // A share of the budget, given back when it is destroyed.
  class Lease {
   public:
    Lease() = default;
    Lease(HttpBodyBudget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {}
    Lease(Lease&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { ShrinkTo(0); }

    void ShrinkTo(size_t bytes);

   private:
    HttpBodyBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit HttpBodyBudget(size_t max_bytes) : max_bytes_(max_bytes) {}

  // False when the budget is used up. The share `lease` had before is given back first.
  bool Take(size_t bytes, Lease* lease);
  size_t used_bytes() const { return used_bytes_.load(); }

 private:
  const size_t max_bytes_;
  std::atomic<size_t> used_bytes_{0};
};

}  // namespace emberkv
