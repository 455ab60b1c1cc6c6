#include "server/http_server.h"

#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <fmt/format.h>

#include "server/http_connection.h"
#include "server/http_core.h"

namespace emberkv {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

// When the process is out of file descriptors: how long connections wait before accepting is tried again.
constexpr std::chrono::milliseconds kAcceptPause{50};

Result<tcp::endpoint> ParseEndpoint(const std::string& address, uint16_t port) {
  Error error;
  const asio::ip::address parsed = asio::ip::make_address(address, error);
  if (error) {
    return InvalidArgument(
        fmt::format("address is '{}', must be an IP address such as 127.0.0.1 or ::1", address));
  }
  return tcp::endpoint(parsed, port);
}

}  // namespace

// Accepts on a strand of its own; everything else of a connection happens on the connection's.
struct HttpServer::State {
  explicit State(std::shared_ptr<HttpCore> shared)
      : core(std::move(shared)),
        work(asio::make_work_guard(core->io)),
        acceptor(asio::make_strand(core->io)),
        accept_pause(acceptor.get_executor()) {}

  Status Listen(const tcp::endpoint& endpoint) {
    Error error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) port = acceptor.local_endpoint(error).port();
    if (!error) return Status::Ok();
    return Unavailable(fmt::format("cannot listen on {} port {}: {}", endpoint.address().to_string(),
                                   endpoint.port(), error.message()));
  }

  void Run(int num_threads) {
    Accept();
    for (int i = 0; i < num_threads; ++i) {
      threads.emplace_back([io = &core->io] {
        // Handlers of the transport do not throw, save for want of memory; the other connections go on then.
        for (bool is_done = false; !is_done;) {
          try {
            io->run();
            is_done = true;
          } catch (...) {
          }
        }
      });
    }
  }

  void Accept() {
    acceptor.async_accept(asio::make_strand(core->io), [this](const Error& error, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (!error) Admit(std::move(socket));
      if (!error || error == asio::error::connection_aborted) return Accept();
      accept_pause.expires_after(kAcceptPause);
      accept_pause.async_wait([this](const Error&) {
        if (acceptor.is_open()) Accept();
      });
    });
  }

  void Admit(tcp::socket socket) {
    ++core->accepted;
    const auto connection = std::make_shared<HttpConnection>(core, std::move(socket));
    const HttpCore::Entry entry = core->Enter(connection);
    if (entry == HttpCore::Entry::kAdmitted) return connection->Start();
    ++core->refused;
    if (entry == HttpCore::Entry::kRefused) connection->Refuse();
  }

  void StopAccepting() {
    if (std::exchange(is_stopped_accepting, true)) return;
    std::promise<void> closed;
    asio::post(acceptor.get_executor(), [&] {
      Error ignored;
      acceptor.close(ignored);
      accept_pause.cancel();
      closed.set_value();
    });
    closed.get_future().wait();
    core->Drain();
  }

  void Stop(std::chrono::milliseconds grace) {
    if (threads.empty()) return;
    StopAccepting();
    if (!core->WaitUntilEmpty(std::chrono::steady_clock::now() + grace)) {
      core->BreakOffAll();
      core->WaitUntilEmpty();
    }
    work.reset();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  const std::shared_ptr<HttpCore> core;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  tcp::acceptor acceptor;
  asio::steady_timer accept_pause;
  uint16_t port = 0;
  bool is_stopped_accepting = false;
  std::vector<std::thread> threads;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options, HttpHandler handler) {
  EMBERKV_RETURN_IF_ERROR(options.limits.Validate());
  if (options.io_threads < 1) {
    return InvalidArgument(fmt::format("io_threads is {}, must be at least 1", options.io_threads));
  }
  EMBERKV_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, ParseEndpoint(options.address, options.port));
  const int num_threads = options.io_threads;
  auto core = std::make_shared<HttpCore>(std::move(options), std::move(handler));
  EMBERKV_RETURN_IF_ERROR(core->LoadTls());
  auto state = std::make_unique<State>(std::move(core));
  EMBERKV_RETURN_IF_ERROR(state->Listen(endpoint));
  state->Run(num_threads);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { Stop(std::chrono::milliseconds(0)); }

uint16_t HttpServer::port() const { return state_->port; }

HttpServerStats HttpServer::Stats() const {
  const HttpCore& core = *state_->core;
  HttpServerStats stats;
  stats.accepted = core.accepted;
  stats.refused = core.refused;
  stats.open_connections = core.open_connections();
  stats.requests = core.requests;
  stats.errors = core.errors;
  stats.disconnects = core.disconnects;
  stats.slow_clients = core.slow_clients;
  stats.body_bytes = core.bodies.used_bytes();
  return stats;
}

void HttpServer::StopAccepting() { state_->StopAccepting(); }

void HttpServer::Stop(std::chrono::milliseconds grace) { state_->Stop(grace); }

}  // namespace emberkv
