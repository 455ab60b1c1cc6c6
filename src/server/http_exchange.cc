#include "server/http_exchange.h"

#include <algorithm>
#include <utility>

#include "server/http_connection.h"

namespace emberkv {
namespace {

// A chunk's size in hexadecimal digits and two line ends.
constexpr size_t kChunkFrameBytes = 32;

}  // namespace

HttpExchange::HttpExchange(std::shared_ptr<HttpConnection> connection, HttpRequest request,
                           HttpResponseShape shape, HttpBodyBudget::Lease body_lease)
    : connection_(std::move(connection)),
      request_(std::move(request)),
      body_lease_(std::move(body_lease)),
      shape_(shape) {}

HttpExchange::~HttpExchange() {
  if (phase_ == Phase::kOpen) {
    HttpErrorBody error = connection_->MakeErrorBody(500, "The request ended without an answer.");
    (void)ReplyLocked(500, {{"Content-Type", error.content_type}}, std::move(error.body));
  } else if (phase_ == Phase::kStream) {
    connection_->BreakOff();
  }
}

const std::atomic<bool>& HttpExchange::gone() const { return connection_->gone(); }

bool HttpExchange::Reply(int status, const HttpHeaders& headers, std::string body) {
  const std::lock_guard lock(mutex_);
  return ReplyLocked(status, headers, std::move(body));
}

bool HttpExchange::ReplyLocked(int status, const HttpHeaders& headers, std::string body) {
  if (phase_ != Phase::kOpen) return false;
  phase_ = Phase::kDone;
  shape_.keep_alive = connection_->DecideKeepAlive(shape_.keep_alive);
  std::string bytes = HttpResponseHead(status, headers, shape_, body.size());
  if (!shape_.is_head && StatusHasBody(status)) bytes += body;
  return connection_->Send(std::move(bytes), true);
}

bool HttpExchange::BeginStream(int status, const HttpHeaders& headers) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kOpen) return false;
  phase_ = Phase::kStream;
  shape_.keep_alive = connection_->DecideKeepAlive(shape_.keep_alive && !shape_.is_http_1_0);
  has_chunks_ = !shape_.is_head && StatusHasBody(status);
  return connection_->Send(HttpResponseHead(status, headers, shape_, std::nullopt), false);
}

bool HttpExchange::WriteChunk(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStream || is_gone()) return false;
  if (!has_chunks_) return true;
  const size_t piece_bytes = connection_->limits().max_buffered_bytes - kChunkFrameBytes;
  for (; !text.empty(); text.remove_prefix(std::min(piece_bytes, text.size()))) {
    const std::string_view piece = text.substr(0, piece_bytes);
    const bool is_sent = shape_.is_http_1_0 ? connection_->SendWhenRoom(piece)
                                            : connection_->SendWhenRoom(HttpChunk(piece));
    if (!is_sent) return false;
  }
  return true;
}

bool HttpExchange::HasRoom(size_t bytes) const { return connection_->HasRoom(bytes + kChunkFrameBytes); }

bool HttpExchange::EndStream() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStream) return false;
  phase_ = Phase::kDone;
  return connection_->Send(has_chunks_ && !shape_.is_http_1_0 ? HttpLastChunk() : std::string(), true);
}

}  // namespace emberkv
