// The HTTP/1.1 transport of `emberkv serve`: sockets, limits and framing, nothing of the API.
//
// Boost.Beast parses and frames (docs/decisions/0005-http-library.md). A few io threads own all sockets; they
// call the handler, which must not block and hands work to threads of its own. Requests of one connection
// are answered one after the other, in order, also when the client sends them ahead.
//
// Start, StopAccepting, Stop and the destructor belong to the owner's thread, never to an io thread; the
// rest is for any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "server/http_exchange.h"
#include "server/http_options.h"

namespace emberkv {

struct HttpServerStats {
  uint64_t accepted = 0;         // connections
  uint64_t refused = 0;          // of these, for want of room
  uint64_t open_connections = 0;
  uint64_t requests = 0;         // handed to the handler
  uint64_t errors = 0;           // answered by the transport itself
  uint64_t disconnects = 0;      // clients that left before their answer was complete
  uint64_t slow_clients = 0;     // given up because they did not read
  uint64_t body_bytes = 0;       // of requests that are alive
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> Start(HttpServerOptions options, HttpHandler handler);
  ~HttpServer();  // as Stop without grace
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  HttpServerStats Stats() const;

  // From here on connecting fails, idle connections end, and every other one ends with its present answer.
  void StopAccepting();
  // StopAccepting, then waits up to `grace` for open answers and breaks off the rest. When it returns no
  // handler runs and none will; exchanges that are still held find their clients gone.
  void Stop(std::chrono::milliseconds grace);

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace emberkv
