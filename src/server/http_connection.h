// One client's connection: reads requests, hands each to the handler, writes its answer, watches for the end.
//
// Lives on a strand of the io context: what is not marked "any thread" runs there. A read is pending nearly
// always, so that a client who leaves is noticed while its answer is computed; what arrives meanwhile is the
// next request and waits in `input_`, up to the size of a head, beyond which reading pauses. Pending
// operations keep the connection alive; it leaves the core's list when its socket is closed.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http_core.h"
#include "server/http_limits.h"
#include "server/http_options.h"
#include "server/http_send_queue.h"

namespace emberkv {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpCore> core, boost::asio::ip::tcp::socket socket);

  // The first call, one of these, on any thread; the connection is on the core's list.
  void Start();
  void Refuse();

  // Any thread.
  const HttpLimits& limits() const { return core_->options.limits; }
  HttpErrorBody MakeErrorBody(int status, std::string_view message) const {
    return core_->MakeErrorBody(status, message);
  }
  const std::atomic<bool>& gone() const { return is_gone_; }
  // Whether the connection stays after the answer whose head is about to be sent, if its client wants that.
  bool DecideKeepAlive(bool is_wanted);
  // False when the client is gone.
  bool Send(std::string bytes, bool is_last);
  // Waits for room; a client that makes none in time is given up.
  bool SendWhenRoom(std::string_view bytes);
  // Whether SendWhenRoom would not wait.
  bool HasRoom(size_t bytes) const { return queue_.HasRoom(bytes); }
  void BreakOff();
  void CloseIfIdle();

 private:
  using Error = boost::system::error_code;
  using Timer = boost::asio::steady_timer;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  // kIdle: no byte of a request yet. kAnswer: a request is with the handler, or an error is on its way out.
  // kLinger: all is sent; waits for the client to close, lest what it still sends destroy the answer.
  enum class Phase { kHandshake, kIdle, kHead, kBody, kAnswer, kLinger, kClosed };

  template <typename Operation>
  void WithStream(Operation operation);

  // Reading.
  void StartOnStrand();
  void BeginRequest();
  void ReadMore();
  void OnRead(const Error& error, size_t bytes);
  void OnReadEnd(const Error& error);
  void ParseInput();
  bool AcceptHead();
  void Dispatch();

  // Answering.
  void Fail(int status, std::string_view message);
  void FailParse(const Error& error);
  size_t SendNow(std::string_view bytes);  // any thread: the queue's
  void OnWake();
  void WriteNext();
  void WritePiece();
  void OnWritten(const Error& error, size_t bytes);
  void FinishAnswer();

  // Ending.
  void Linger();
  void CloseGone();  // the client has left
  void Close(bool is_reset);
  void SetDeadline(std::chrono::milliseconds from_now);
  void OnDeadline();
  void SetWriteDeadline();

  const std::shared_ptr<HttpCore> core_;  // first: the socket needs its io context to the end
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  std::string peer_address_;
  HttpSendQueue queue_;
  std::atomic<bool> is_gone_{false};
  std::atomic<bool> closes_after_answer_{false};

  Phase phase_ = Phase::kIdle;
  Timer deadline_;  // for the client to send
  Timer write_deadline_;
  bool is_reading_ = false;
  bool is_answering_request_ = false;  // in kAnswer: the handler's, not an error of the transport
  bool is_first_request_ = true;
  bool has_peer_finished_ = false;     // it sends no more, but may still read
  std::array<char, 8192> received_;
  boost::beast::flat_buffer input_;
  std::optional<Parser> parser_;
  HttpBodyBudget::Lease body_lease_;
  std::string output_;  // taken from the queue, written up to output_pos_
  size_t output_pos_ = 0;
};

}  // namespace emberkv
