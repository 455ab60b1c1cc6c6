// One request and its one answer, in the hands of whoever computes it.
//
// Thread-safe; hold it by shared_ptr as long as the answer is not complete, on any thread, also beyond the
// life of the server (then the client is gone). The answer is either Reply, or BeginStream, any number of
// WriteChunk and EndStream. When the last reference goes away without an answer the client gets a 500; a
// stream without an end is broken off, so that no client takes a part for the whole.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http_limits.h"
#include "server/http_message.h"
#include "server/http_response.h"

namespace emberkv {

class HttpConnection;

class HttpExchange {
 public:
  // Made by the connection.
  HttpExchange(std::shared_ptr<HttpConnection> connection, HttpRequest request, HttpResponseShape shape,
               HttpBodyBudget::Lease body_lease);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const HttpRequest& request() const { return request_; }

  // The whole answer. Never waits. False when the client is gone or an answer was begun before.
  bool Reply(int status, const HttpHeaders& headers, std::string body);

  // Never waits. False as above.
  bool BeginStream(int status, const HttpHeaders& headers);
  // Waits, up to the write timeout, while this client's buffer is full: not for io threads, nor for a thread
  // that other clients depend on. False when the client is gone or was given up because it does not read.
  bool WriteChunk(std::string_view text);
  // Whether WriteChunk would not wait.
  bool HasRoom(size_t bytes) const;
  // Never waits. What was written still goes out.
  bool EndStream();

  // True from the moment the client has closed the connection, its sending half included, or it broke.
  bool is_gone() const { return gone().load(std::memory_order_relaxed); }
  const std::atomic<bool>& gone() const;

 private:
  enum class Phase { kOpen, kStream, kDone };

  bool ReplyLocked(int status, const HttpHeaders& headers, std::string body);

  const std::shared_ptr<HttpConnection> connection_;
  const HttpRequest request_;
  const HttpBodyBudget::Lease body_lease_;  // as long as the body lives

  std::mutex mutex_;
  HttpResponseShape shape_;       // guarded by mutex_
  Phase phase_ = Phase::kOpen;    // guarded by mutex_
  bool has_chunks_ = false;       // guarded by mutex_: a stream of a HEAD request has none
};

}  // namespace emberkv
