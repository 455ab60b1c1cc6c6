// What an HTTP server is told at its start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_limits.h"
#include "server/http_message.h"

namespace emberkv {

class HttpExchange;

struct HttpErrorBody {
  std::string content_type{};
  std::string body{};
};

// Called on an io thread. The request lives as long as the exchange. An exception counts as no answer: 500.
using HttpHandler = std::function<void(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange)>;

struct HttpServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: any that is free
  int io_threads = 1;
  HttpLimits limits{};
  // PEM files, both or none. With them the server speaks TLS (1.2 and newer) only.
  std::string tls_certificate_file{};
  std::string tls_key_file{};
  // Body of the transport's own errors: 400, 408, 413, 417, 431, 500, 503. Called on any thread.
  // Empty: the message as text.
  std::function<HttpErrorBody(int status, std::string_view message)> error_body{};
};

}  // namespace emberkv
