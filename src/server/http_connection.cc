#include "server/http_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>

#include "server/http_exchange.h"
#include "server/http_response.h"

namespace emberkv {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// An answer leaves in pieces of this size, each within the write timeout.
constexpr size_t kWritePieceBytes = size_t{64} << 10;
constexpr std::chrono::milliseconds kLingerTime{2'000};
// A client that vanished without a word (power, network) is noticed after about a minute.
constexpr int kProbeAfterSeconds = 30;
constexpr int kProbeEverySeconds = 10;
constexpr int kProbes = 3;

void SetSocketOptions(asio::ip::tcp::socket* socket) {
  boost::system::error_code ignored;  // of a socket whose client has left already
  socket->set_option(asio::ip::tcp::no_delay(true), ignored);
  socket->set_option(asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int name, int value) {
    (void)setsockopt(socket->native_handle(), IPPROTO_TCP, name, &value, sizeof(value));
  };
  set(TCP_KEEPIDLE, kProbeAfterSeconds);
  set(TCP_KEEPINTVL, kProbeEverySeconds);
  set(TCP_KEEPCNT, kProbes);
}

// Path and query of a request target, which proxies may write with scheme and host in front.
std::pair<std::string, std::string> SplitTarget(std::string_view target) {
  const size_t scheme_end = target.starts_with("/") ? std::string_view::npos : target.find("://");
  if (scheme_end != std::string_view::npos) {
    target.remove_prefix(scheme_end + 3);
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  const size_t mark = std::min(target.find('?'), target.size());
  std::string path(target.substr(0, mark));
  std::string query(target.substr(std::min(mark + 1, target.size())));
  return {path.empty() ? "/" : std::move(path), std::move(query)};
}

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

HttpRequest ToRequest(http::request<http::string_body> message, std::string peer_address) {
  HttpRequest request;
  request.method = std::string(View(message.method_string()));
  std::tie(request.path, request.query) = SplitTarget(View(message.target()));
  for (const auto& field : message) {
    request.headers.emplace_back(View(field.name_string()), View(field.value()));
  }
  request.body = std::move(message.body());
  request.peer_address = std::move(peer_address);
  return request;
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, asio::ip::tcp::socket socket)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      // The queue calls only while this connection is on the core's list, so the io context runs.
      queue_(core_->options.limits.max_buffered_bytes,
             [this] { asio::post(socket_.get_executor(), [self = shared_from_this()] { self->OnWake(); }); },
             [this](std::string_view bytes) { return SendNow(bytes); }),
      deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()) {
  Error ignored;
  peer_address_ = socket_.remote_endpoint(ignored).address().to_string(ignored);
  if (core_->tls) tls_.emplace(socket_, *core_->tls);
}

template <typename Operation>
void HttpConnection::WithStream(Operation operation) {
  if (tls_) {
    operation(*tls_);
  } else {
    operation(socket_);
  }
}

// ---- any thread

void HttpConnection::Start() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] { self->StartOnStrand(); });
}

void HttpConnection::Refuse() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::kClosed) return;
    self->Fail(503, "The server has as many connections as it takes. Try again later.");
    self->ReadMore();
  });
}

bool HttpConnection::DecideKeepAlive(bool is_wanted) {
  const bool keeps = is_wanted && !core_->is_draining;
  if (!keeps) closes_after_answer_ = true;
  return keeps;
}

bool HttpConnection::Send(std::string bytes, bool is_last) {
  return queue_.Add(std::move(bytes), is_last) == HttpSendQueue::Added::kQueued;
}

bool HttpConnection::SendWhenRoom(std::string_view bytes) {
  const HttpSendQueue::Added added = queue_.AddWhenRoom(bytes, limits().write_timeout);
  if (added == HttpSendQueue::Added::kTimedOut && !is_gone_.exchange(true)) {
    ++core_->slow_clients;
    BreakOff();
  }
  return added == HttpSendQueue::Added::kQueued;
}

void HttpConnection::BreakOff() {
  is_gone_ = true;
  queue_.Close();
}

void HttpConnection::CloseIfIdle() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::kIdle) self->Close(false);
  });
}

// ---- reading

void HttpConnection::StartOnStrand() {
  if (phase_ == Phase::kClosed || queue_.is_closed()) return;
  SetSocketOptions(&socket_);
  if (!tls_) return BeginRequest();
  phase_ = Phase::kHandshake;
  SetDeadline(limits().header_timeout);
  tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](const Error& error) {
    if (self->phase_ == Phase::kClosed) return;
    if (error) return self->Close(false);
    self->BeginRequest();
  });
}

void HttpConnection::BeginRequest() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(
      std::min<size_t>(limits().max_header_bytes, std::numeric_limits<uint32_t>::max())));
  parser_->body_limit(uint64_t{limits().max_body_bytes});
  phase_ = Phase::kIdle;
  if (core_->is_draining && input_.size() == 0) return Close(false);
  SetDeadline(is_first_request_ ? limits().header_timeout : limits().idle_timeout);
  is_first_request_ = false;
  ParseInput();
}

void HttpConnection::ReadMore() {
  if (is_reading_ || has_peer_finished_ || phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kAnswer && input_.size() >= limits().max_header_bytes) return;
  is_reading_ = true;
  WithStream([this](auto& stream) {
    stream.async_read_some(asio::buffer(received_),
                           [self = shared_from_this()](const Error& error, size_t bytes) {
                             self->OnRead(error, bytes);
                           });
  });
}

void HttpConnection::OnRead(const Error& error, size_t bytes) {
  is_reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) return OnReadEnd(error);
  if (phase_ == Phase::kLinger) return ReadMore();
  asio::buffer_copy(input_.prepare(bytes), asio::buffer(received_, bytes));
  input_.commit(bytes);
  if (phase_ == Phase::kAnswer) return ReadMore();
  ParseInput();
}

void HttpConnection::OnReadEnd(const Error& error) {
  has_peer_finished_ = true;
  // An answer that is complete but for the sending still goes out: its client may still be reading.
  const bool may_still_read = error == asio::error::eof && phase_ == Phase::kAnswer &&
                              (!is_answering_request_ || queue_.is_last_added());
  if (may_still_read) {
    closes_after_answer_ = true;
  } else if (phase_ == Phase::kAnswer) {
    CloseGone();
  } else {
    Close(false);
  }
}

void HttpConnection::ParseInput() {
  if (phase_ == Phase::kIdle && input_.size() > 0) {
    phase_ = Phase::kHead;
    SetDeadline(limits().header_timeout);
  }
  while (input_.size() > 0) {
    Error error;
    const size_t used = parser_->put(input_.data(), error);
    input_.consume(used);
    if (error && error != http::error::need_more) return FailParse(error);
    if (phase_ == Phase::kHead && parser_->is_header_done() && !AcceptHead()) return;
    if (parser_->is_done()) return Dispatch();
    if (used == 0) break;
  }
  // Beast bounds heads and bodies; this bounds what lies between the chunks of a body.
  if (input_.size() > limits().max_header_bytes + received_.size()) {
    return FailParse(http::error::header_limit);
  }
  ReadMore();
}

bool HttpConnection::AcceptHead() {
  const auto& message = parser_->get();
  if (message.version() != 10 && message.version() != 11) {
    return Fail(400, "The only versions understood are HTTP/1.0 and HTTP/1.1."), false;
  }
  if (message.version() == 11 && message.count(http::field::host) != 1) {
    return Fail(400, "A request of HTTP/1.1 has exactly one Host header."), false;
  }
  // Anything but plain chunks would leave the end of the body to guessing.
  if (const auto coding = message.find(http::field::transfer_encoding);
      coding != message.end() &&
      (!EqualsIgnoringCase(View(coding->value()), "chunked") || message.count(coding->name()) != 1)) {
    return Fail(400, "The only Transfer-Encoding understood is 'chunked'."), false;
  }
  const size_t body_bytes = parser_->chunked() ? limits().max_body_bytes
                                               : static_cast<size_t>(parser_->content_length().value_or(0));
  if (!core_->bodies.Take(body_bytes, &body_lease_)) {
    return Fail(503, "The server holds as many request bodies as it takes. Try again later."), false;
  }
  if (const auto expect = message.find(http::field::expect);
      expect != message.end() && message.version() == 11) {
    if (!EqualsIgnoringCase(View(expect->value()), "100-continue")) {
      return Fail(417, "The only Expect understood is '100-continue'."), false;
    }
    if (!parser_->is_done() && input_.size() == 0) Send(HttpContinue(), false);
  }
  phase_ = Phase::kBody;
  SetDeadline(limits().body_timeout);
  return true;
}

void HttpConnection::Dispatch() {
  phase_ = Phase::kAnswer;
  is_answering_request_ = true;
  deadline_.cancel();
  http::request<http::string_body> message = parser_->release();
  parser_.reset();
  body_lease_.ShrinkTo(message.body().size());
  const HttpResponseShape shape{message.version() == 10, message.method() == http::verb::head,
                                message.keep_alive()};
  auto exchange = std::make_shared<HttpExchange>(shared_from_this(),
                                                 ToRequest(std::move(message), peer_address_), shape,
                                                 std::move(body_lease_));
  ++core_->requests;
  ReadMore();
  try {
    const HttpRequest& request = exchange->request();
    core_->handler(request, std::move(exchange));
  } catch (...) {
    // No answer: the exchange says so to the client when it is destroyed.
  }
}

// ---- answering

void HttpConnection::Fail(int status, std::string_view message) {
  ++core_->errors;
  phase_ = Phase::kAnswer;
  is_answering_request_ = false;
  closes_after_answer_ = true;
  deadline_.cancel();
  body_lease_ = {};
  HttpErrorBody error = MakeErrorBody(status, message);
  const HttpResponseShape shape{.keep_alive = false};
  const HttpHeaders headers = {{"Content-Type", error.content_type}};
  Send(HttpResponseHead(status, headers, shape, error.body.size()) + error.body, true);
}

void HttpConnection::FailParse(const Error& error) {
  if (error == http::error::header_limit) return Fail(431, "The request's headers are too large.");
  if (error == http::error::body_limit) return Fail(413, "The request's body is too large.");
  Fail(400, "The request is not valid HTTP: " + error.message() + ".");
}

// For the thread of a stream an event costs one call of the system, where waking the writer costs several and
// two changes of threads. The socket is open: it is closed after the queue.
size_t HttpConnection::SendNow(std::string_view bytes) {
  if (tls_) return 0;  // its state is the writer's
  const ssize_t sent = send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent > 0 ? static_cast<size_t>(sent) : 0;
}

void HttpConnection::OnWake() {
  if (phase_ == Phase::kClosed) return;
  if (queue_.is_closed()) return Close(true);
  WriteNext();
}

void HttpConnection::WriteNext() {
  switch (queue_.Take(&output_)) {
    case HttpSendQueue::Taken::kBytes:
      output_pos_ = 0;
      return WritePiece();
    case HttpSendQueue::Taken::kNothing:
      return;
    case HttpSendQueue::Taken::kEnd:
      return FinishAnswer();
    case HttpSendQueue::Taken::kClosed:
      return Close(true);
  }
}

void HttpConnection::WritePiece() {
  SetWriteDeadline();
  const auto piece = asio::buffer(output_.data() + output_pos_,
                                  std::min(kWritePieceBytes, output_.size() - output_pos_));
  WithStream([this, piece](auto& stream) {
    asio::async_write(stream, piece, [self = shared_from_this()](const Error& error, size_t bytes) {
      self->OnWritten(error, bytes);
    });
  });
}

void HttpConnection::OnWritten(const Error& error, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  write_deadline_.cancel();
  if (error) return CloseGone();
  queue_.NoteWritten(bytes);
  output_pos_ += bytes;
  if (output_pos_ < output_.size()) return WritePiece();
  WriteNext();
}

void HttpConnection::FinishAnswer() {
  is_answering_request_ = false;
  output_ = std::string();
  if (closes_after_answer_) return Linger();
  BeginRequest();
}

// ---- ending

void HttpConnection::Linger() {
  phase_ = Phase::kLinger;
  if (has_peer_finished_) return Close(false);
  SetDeadline(kLingerTime);
  if (tls_) {
    tls_->async_shutdown([self = shared_from_this()](const Error&) {});
  } else {
    Error error;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
    if (error) return Close(false);
  }
  ReadMore();
}

void HttpConnection::CloseGone() {
  if (is_answering_request_) ++core_->disconnects;
  Close(true);
}

void HttpConnection::Close(bool is_reset) {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  is_gone_ = true;
  queue_.Close();
  Error ignored;
  // Without it the system would keep what the client does not read for minutes.
  if (is_reset) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
  deadline_.cancel();
  write_deadline_.cancel();
  body_lease_ = {};
  core_->Leave(this);
}

void HttpConnection::SetDeadline(std::chrono::milliseconds from_now) {
  deadline_.expires_after(from_now);
  deadline_.async_wait([self = shared_from_this()](const Error& error) {
    // A timer that was set anew while its end was already on the way has not ended.
    if (!error && self->deadline_.expiry() <= Timer::clock_type::now()) self->OnDeadline();
  });
}

void HttpConnection::OnDeadline() {
  switch (phase_) {
    case Phase::kHandshake:
    case Phase::kIdle:
    case Phase::kLinger:
      return Close(false);
    case Phase::kHead:
      return Fail(408, "The request's headers did not arrive in time.");
    case Phase::kBody:
      return Fail(408, "The request's body did not arrive in time.");
    case Phase::kAnswer:
    case Phase::kClosed:
      return;
  }
}

void HttpConnection::SetWriteDeadline() {
  write_deadline_.expires_after(limits().write_timeout);
  write_deadline_.async_wait([self = shared_from_this()](const Error& error) {
    if (error || self->phase_ == Phase::kClosed) return;
    if (self->write_deadline_.expiry() > Timer::clock_type::now()) return;
    if (!self->is_gone_.exchange(true)) ++self->core_->slow_clients;
    self->Close(true);
  });
}

}  // namespace emberkv
