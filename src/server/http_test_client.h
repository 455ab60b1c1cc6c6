// A plain client for the tests of the HTTP server: one connection, blocking, on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "server/http_server.h"

namespace emberkv {

class HttpTestClient {
 public:
  using Response = boost::beast::http::response<boost::beast::http::string_body>;
  using Socket = boost::asio::ip::tcp::socket;

  // A receive buffer of a size of its own must be set before the connection is made.
  explicit HttpTestClient(uint16_t port, int receive_bytes = 0) : socket_(io_) {
    socket_.open(boost::asio::ip::tcp::v4());
    if (receive_bytes > 0) socket_.set_option(boost::asio::socket_base::receive_buffer_size(receive_bytes));
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
  }

  // A failure to send is not one of the test: the server may have closed already.
  bool Send(std::string_view bytes) {
    boost::system::error_code error;
    boost::asio::write(socket_, boost::asio::buffer(bytes.data(), bytes.size()), error);
    return !error;
  }

  Response Read(bool is_head = false) {
    boost::beast::http::response_parser<boost::beast::http::string_body> parser;
    parser.skip(is_head);
    boost::system::error_code error;
    boost::beast::http::read(socket_, buffer_, parser, error);
    last_error_ = error;
    return error ? Response() : parser.release();
  }

  Response Get(std::string_view target) {
    Send("GET " + std::string(target) + " HTTP/1.1\r\nHost: test\r\n\r\n");
    return Read();
  }

  // All that still comes, until the server closes.
  std::string ReadToEnd() {
    std::string bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    buffer_.clear();
    boost::asio::read(socket_, boost::asio::dynamic_buffer(bytes), last_error_);
    return bytes;
  }

  void FinishSending() { socket_.shutdown(Socket::shutdown_send); }
  void Reset() {
    socket_.set_option(boost::asio::socket_base::linger(true, 0));
    socket_.close();
  }
  const boost::system::error_code& last_error() const { return last_error_; }

 private:
  boost::asio::io_context io_;
  Socket socket_;
  boost::beast::flat_buffer buffer_;
  boost::system::error_code last_error_;
};

// Exchanges on their way from the handler to the test.
class HttpInbox {
 public:
  HttpHandler Handler() {
    return [this](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
      const std::lock_guard lock(mutex_);
      exchanges_.push_back(std::move(exchange));
      arrived_.notify_all();
    };
  }

  // Waits for `count` of them.
  std::vector<std::shared_ptr<HttpExchange>> Take(size_t count) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return exchanges_.size() >= count; });
    return std::exchange(exchanges_, {});
  }
  std::shared_ptr<HttpExchange> TakeOne() { return Take(1).front(); }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<HttpExchange>> exchanges_;
};

inline std::unique_ptr<HttpServer> StartHttp(HttpServerOptions options, HttpHandler handler) {
  auto server = HttpServer::Start(std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return std::move(server).value();
}

// Answers every request with what was understood of it.
inline void AnswerEcho(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
  exchange->Reply(200, {{"Content-Type", "text/plain"}},
                  request.method + " " + request.path + "?" + request.query + " " + request.body);
}

// Waits without a limit of its own: a test that hangs here has failed.
inline void WaitUntil(const std::function<bool()>& is_true) {
  while (!is_true()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace emberkv
