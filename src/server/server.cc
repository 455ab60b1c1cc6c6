#include "server/server.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "server/http_server.h"
#include "server/routes.h"
#include "server/serving.h"

namespace emberkv {
namespace {

constexpr int kQuickThreads = 2;
constexpr int kMaxQuickCalls = 1024;  // parsed or about to be
constexpr std::chrono::milliseconds kGoneInterval{200};
constexpr std::chrono::seconds kStopTimeout{10};        // for what runs to notice that it should stop
constexpr std::chrono::seconds kLastAnswersTimeout{5};  // for answers that are complete to leave

HttpErrorBody TransportError(int status, std::string_view message, Metrics* metrics) {
  metrics->CountReply("transport", status);
  return {"application/json", ErrorJson({status, std::string(message), "", ""})};
}

}  // namespace

struct Server::Parts {
  ServerOptions options;
  ServingFiles files;

  // From Serve on. In this order: the threads end before what they use.
  std::optional<Serving> serving;
  std::optional<boost::asio::thread_pool> quick;
  std::optional<boost::asio::thread_pool> runners;
  std::atomic<int> quick_calls{0};
  std::jthread gone_watch;
  std::unique_ptr<HttpServer> http;

  void Handle(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange);
  void Answer(const Route& route, const std::shared_ptr<ApiCall>& call);
  bool Admit(const Route& route, const std::shared_ptr<ApiCall>& call);
  void WatchGone(const std::stop_token& stop);
};

void Server::Parts::Handle(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
  const RouteMatch match = FindRoute(request.method, request.path);
  const auto call = std::make_shared<ApiCall>(
      std::move(exchange), match.route ? std::string(match.route->path) : "other", &files.metrics);
  if (!match.route) {
    if (match.allowed_methods.empty()) {
      call->ReplyError({404, "there is nothing at this path", "", "not_found"});
    } else {
      call->ReplyError(
          {405, fmt::format("this path allows {}", match.allowed_methods), "", "method_not_allowed"},
          {{"Allow", match.allowed_methods}});
    }
    return;
  }
  if (!Admit(*match.route, call)) return;
  if (match.route->is_instant) {
    Answer(*match.route, call);
    return;
  }
  if (quick_calls.fetch_add(1) >= kMaxQuickCalls) {
    quick_calls.fetch_sub(1);
    call->ReplyError({503, "too many requests wait to be read", "", "overloaded"}, {{"Retry-After", "1"}});
    return;
  }
  boost::asio::post(*quick, [this, call, route = match.route] {
    if (!call->gone().load()) Answer(*route, call);
    quick_calls.fetch_sub(1);
  });
}

bool Server::Parts::Admit(const Route& route, const std::shared_ptr<ApiCall>& call) {
  if (route.access == Access::kOpen) return true;
  auto tenant = files.tenants->Authenticate(call->request().Header("Authorization").value_or(""));
  if (!tenant.ok()) {
    call->ReplyError({401, tenant.status().message(), "", "invalid_api_key"},
                     {{"WWW-Authenticate", "Bearer"}});
    return false;
  }
  if (route.access == Access::kOperator && !(*tenant)->is_operator) {
    call->ReplyError(
        {403, "this tells about all tenants: it needs the key of an operator", "", "not_an_operator"});
    return false;
  }
  call->set_tenant(*tenant);
  return true;
}

void Server::Parts::Answer(const Route& route, const std::shared_ptr<ApiCall>& call) {
  try {
    route.answer(call, &*serving);
  } catch (const std::exception& error) {  // no memory, most likely: this call fails, the server goes on
    files.log->error("{} {}: {}", call->id(), call->route(), error.what());
    call->ReplyError(ErrorOf(Internal(error.what())));
  }
}

// A client that leaves while its request waits gives its place to others.
void Server::Parts::WatchGone(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, stop, kGoneInterval, [] { return false; }) && !stop.stop_requested()) {
    serving->admission.DropGone();
  }
}

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Server::~Server() { Drain(std::chrono::milliseconds(0)); }

Result<std::unique_ptr<Server>> Server::Open(const ServerOptions& options,
                                             std::shared_ptr<spdlog::logger> log) {
  EMBERKV_RETURN_IF_ERROR(CheckServerOptions(options));
  auto parts = std::make_unique<Parts>();
  parts->options = options;
  ServingFiles& files = parts->files;
  files.log = std::move(log);
  files.prices = PublishedPrices();
  if (!options.prices_file.empty()) {
    EMBERKV_ASSIGN_OR_RETURN(files.prices, LoadPriceTable(options.prices_file));
  }
  files.tenants = std::make_unique<Tenants>();
  if (!options.keys_file.empty()) {
    EMBERKV_ASSIGN_OR_RETURN(files.tenants, Tenants::Load(options.keys_file));
  }
  if (!options.ledger_file.empty()) {
    EMBERKV_ASSIGN_OR_RETURN(files.ledger, LedgerWriter::Open(options.ledger_file));
  }
  if (!options.trace_file.empty()) {
    EMBERKV_ASSIGN_OR_RETURN(files.trace, LedgerWriter::Open(options.trace_file));
  }
  return std::unique_ptr<Server>(new Server(std::move(parts)));
}

Status Server::Serve(const Engine* engine) {
  Parts& parts = *parts_;
  const ServerOptions& options = parts.options;
  const AdmissionOptions limits{options.max_running, options.max_queued, engine->memory_plan().pool_pages};
  parts.quick.emplace(kQuickThreads);
  parts.runners.emplace(static_cast<size_t>(options.max_running));
  parts.serving.emplace(
      &parts.files, DescribeModel(*engine, options.model_name), limits,
      [&parts](std::function<void()> work) { boost::asio::post(*parts.runners, std::move(work)); });
  parts.gone_watch = std::jthread([&parts](const std::stop_token& stop) { parts.WatchGone(stop); });

  HttpServerOptions http;
  http.address = options.host == "localhost" ? "127.0.0.1" : options.host;
  http.port = options.port;
  http.limits.max_body_bytes = options.max_body_bytes;
  http.tls_certificate_file = options.tls_certificate_file;
  http.tls_key_file = options.tls_key_file;
  http.error_body = [&parts](int status, std::string_view message) {
    return TransportError(status, message, &parts.files.metrics);
  };
  EMBERKV_ASSIGN_OR_RETURN(
      parts.http, HttpServer::Start(std::move(http), [&parts](const HttpRequest& request,
                                                              std::shared_ptr<HttpExchange> exchange) {
        parts.Handle(request, std::move(exchange));
      }));
  return Status::Ok();
}

std::string Server::url() const {
  const ServerOptions& options = parts_->options;
  const bool is_v6 = options.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", options.tls_key_file.empty() ? "http" : "https", is_v6 ? "[" : "",
                     options.host, is_v6 ? "]" : "", parts_->http->port());
}

void Server::ReloadKeys() {
  ServingFiles& files = parts_->files;
  if (!files.tenants->needs_keys()) {
    files.log->info("reload: there is no keys file");
    return;
  }
  const Status status = files.tenants->Reload();
  if (status.ok()) {
    files.log->info("reload: the keys file has {} tenants now", files.tenants->num_tenants());
  } else {
    files.log->error("reload: the old keys stay in use: {}", status.message());
  }
}

void Server::Drain(std::chrono::milliseconds grace) {
  Parts& parts = *parts_;
  if (!parts.serving) return;
  Serving& serving = *parts.serving;
  serving.is_draining = true;
  if (parts.http) parts.http->StopAccepting();
  serving.admission.Drain();
  if (!serving.admission.WaitIdle(grace)) {
    serving.stops = true;
    serving.admission.WaitIdle(kStopTimeout);
  }
  if (parts.http) parts.http->Stop(kLastAnswersTimeout);
  parts.gone_watch = std::jthread();
  parts.quick->join();
  parts.runners->join();
  parts.http.reset();
  parts.serving.reset();
}

}  // namespace emberkv
