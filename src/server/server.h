// The service behind `emberkv serve`: routes, tenants, admission, accounts, and an orderly end.
//
// Open checks and loads what is quick, before a model is; Serve listens. Both, Drain and the destructor
// belong to the owner's thread; the rest is for any thread. The engine is not owned and outlives the server.
//
// Threads: the transport's io thread looks routes and keys up and hands everything else over; two threads
// parse, tokenize and answer what is quick; each running request has one of max_running.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "server/server_options.h"

namespace spdlog {
class logger;
}

namespace emberkv {

class Server {
 public:
  static Result<std::unique_ptr<Server>> Open(const ServerOptions& options,
                                              std::shared_ptr<spdlog::logger> log);
  ~Server();  // as Drain without grace
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status Serve(const Engine* engine);

  std::string url() const;  // where it listens

  // Reads the keys file again; one that is wrong changes nothing. Logs what came of it.
  void ReloadKeys();

  // Admits nothing more, lets what runs finish for `grace`, then ends it with what there is, and stops
  // listening. Blocks until nothing runs.
  void Drain(std::chrono::milliseconds grace);

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace emberkv
