#include "server/server_options.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>

namespace emberkv {
namespace {

constexpr int kMaxRunning = 1024;
constexpr int kMaxQueued = 100'000;
constexpr size_t kMaxBodyBytes = size_t{1} << 30;

}  // namespace

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

Status CheckServerOptions(const ServerOptions& options) {
  boost::system::error_code error;
  boost::asio::ip::make_address(options.host, error);
  if (error && options.host != "localhost") {
    return InvalidArgument(
        fmt::format("host is '{}'; allowed: an IP address of this machine, 0.0.0.0 or :: for all "
                    "of them, or localhost",
                    options.host));
  }
  if (!IsLoopback(options.host) && options.keys_file.empty()) {
    return InvalidArgument(
        fmt::format("host is {}, which other machines can reach, and there is no keys file: give one "
                    "(keys), or keep to 127.0.0.1",
                    options.host));
  }
  if (options.tls_certificate_file.empty() != options.tls_key_file.empty()) {
    return InvalidArgument("tls-cert and tls-key go together: give both or none");
  }
  if (options.max_running < 1 || options.max_running > kMaxRunning) {
    return InvalidArgument(
        fmt::format("max-running is {}; allowed: 1 to {}", options.max_running, kMaxRunning));
  }
  if (options.max_queued < 0 || options.max_queued > kMaxQueued) {
    return InvalidArgument(fmt::format("max-queued is {}; allowed: 0 to {}", options.max_queued, kMaxQueued));
  }
  if (options.max_body_bytes < 1024 || options.max_body_bytes > kMaxBodyBytes) {
    return InvalidArgument(
        fmt::format("max-body is {} bytes; allowed: 1024 to {}", options.max_body_bytes, kMaxBodyBytes));
  }
  return Status::Ok();
}

}  // namespace emberkv
