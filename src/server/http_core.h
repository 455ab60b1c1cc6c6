// What the connections of one HttpServer share: the io context, options, counters and the list of them.
//
// Kept alive by the server and by every connection, so that an exchange may outlive the server. Thread-safe
// except where a comment says otherwise. The io context runs until the last connection has left.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>  // before Boost 1.74's asio, which forgets it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>

#include "base/status.h"
#include "server/http_options.h"

namespace emberkv {

class HttpConnection;

class HttpCore {
 public:
  HttpCore(HttpServerOptions options, HttpHandler handler);

  // Before the first connection.
  Status LoadTls();

  HttpErrorBody MakeErrorBody(int status, std::string_view message) const;

  enum class Entry { kAdmitted, kRefused, kDropped };
  // Puts a new connection on the list, unless even refusing it politely costs too much (kDropped).
  Entry Enter(const std::shared_ptr<HttpConnection>& connection);
  // The connection's sockets are closed and nothing of it is pending but handlers that do nothing.
  void Leave(const HttpConnection* connection);
  size_t open_connections() const;

  // Every connection that is idle closes; the others close after their present answer.
  void Drain();
  void BreakOffAll();
  // False when somebody is left at `deadline`.
  bool WaitUntilEmpty(std::chrono::steady_clock::time_point deadline);
  void WaitUntilEmpty();

  // Constant after construction and LoadTls.
  const HttpServerOptions options;
  const HttpHandler handler;
  std::optional<boost::asio::ssl::context> tls;

  boost::asio::io_context io;
  HttpBodyBudget bodies;
  std::atomic<bool> is_draining{false};
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> requests{0};
  std::atomic<uint64_t> errors{0};
  std::atomic<uint64_t> disconnects{0};
  std::atomic<uint64_t> slow_clients{0};

 private:
  struct Member {
    std::weak_ptr<HttpConnection> connection;
    bool is_admitted = false;
  };

  mutable std::mutex mutex_;
  std::condition_variable left_;
  std::unordered_map<const HttpConnection*, Member> members_;  // guarded by mutex_
  size_t num_admitted_ = 0;                                    // guarded by mutex_
};

}  // namespace emberkv
