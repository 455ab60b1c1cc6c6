#include "server/http_core.h"

#include <exception>
#include <string>

#include <boost/asio/ssl.hpp>
#include <fmt/format.h>

#include "server/http_connection.h"

namespace emberkv {
namespace {

namespace asio = boost::asio;

// Refused connections that may wait at once for their client to read why; more are just closed.
constexpr size_t kMaxPoliteRefusals = 64;

Status TlsFileError(const char* what, const std::string& path, const boost::system::error_code& error) {
  return InvalidArgument(fmt::format("{} '{}': {}", what, path, error.message()));
}

}  // namespace

HttpCore::HttpCore(HttpServerOptions server_options, HttpHandler request_handler)
    : options(std::move(server_options)),
      handler(std::move(request_handler)),
      io(options.io_threads),
      bodies(options.limits.max_total_body_bytes) {}

Status HttpCore::LoadTls() {
  const std::string& certificate = options.tls_certificate_file;
  const std::string& key = options.tls_key_file;
  if (certificate.empty() && key.empty()) return Status::Ok();
  if (certificate.empty() || key.empty()) {
    return InvalidArgument("TLS needs both a certificate file and a key file");
  }
  using Context = asio::ssl::context;
  Context& context = tls.emplace(Context::tls_server);
  boost::system::error_code error;
  context.set_options(Context::default_workarounds | Context::no_tlsv1 | Context::no_tlsv1_1 |
                          static_cast<Context::options>(SSL_OP_NO_RENEGOTIATION),
                      error);
  if (!error) context.use_certificate_chain_file(certificate, error);
  if (error) return TlsFileError("TLS certificate", certificate, error);
  context.use_private_key_file(key, Context::pem, error);
  if (error) return TlsFileError("TLS key", key, error);
  return Status::Ok();
}

HttpErrorBody HttpCore::MakeErrorBody(int status, std::string_view message) const {
  try {
    if (options.error_body) return options.error_body(status, message);
  } catch (const std::exception&) {
    // The message as text serves as well.
  }
  return {"text/plain; charset=utf-8", std::string(message) + "\n"};
}

HttpCore::Entry HttpCore::Enter(const std::shared_ptr<HttpConnection>& connection) {
  const std::lock_guard lock(mutex_);
  const bool is_admitted = num_admitted_ < options.limits.max_connections;
  if (!is_admitted && (tls || members_.size() - num_admitted_ >= kMaxPoliteRefusals)) return Entry::kDropped;
  members_[connection.get()] = {connection, is_admitted};
  num_admitted_ += is_admitted ? 1 : 0;
  return is_admitted ? Entry::kAdmitted : Entry::kRefused;
}

void HttpCore::Leave(const HttpConnection* connection) {
  const std::lock_guard lock(mutex_);
  const auto member = members_.find(connection);
  if (member == members_.end()) return;
  num_admitted_ -= member->second.is_admitted ? 1 : 0;
  members_.erase(member);
  left_.notify_all();
}

size_t HttpCore::open_connections() const {
  const std::lock_guard lock(mutex_);
  return members_.size();
}

void HttpCore::Drain() {
  is_draining = true;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, member] : members_) {
    if (const auto connection = member.connection.lock()) connection->CloseIfIdle();
  }
}

void HttpCore::BreakOffAll() {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, member] : members_) {
    if (const auto connection = member.connection.lock()) connection->BreakOff();
  }
}

bool HttpCore::WaitUntilEmpty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return left_.wait_until(lock, deadline, [&] { return members_.empty(); });
}

void HttpCore::WaitUntilEmpty() {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return members_.empty(); });
}

}  // namespace emberkv
