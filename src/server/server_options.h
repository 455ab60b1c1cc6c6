// What `emberkv serve` can be told, beside what concerns the engine.
//
// Plain values; CheckServerOptions is a pure function.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace emberkv {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an IP address, or "localhost"
  uint16_t port = 8080;            // 0: any that is free
  std::string tls_certificate_file;
  std::string tls_key_file;

  std::string model_name;   // what clients call the model
  std::string keys_file;    // of tenants; none: everybody on this machine is the local user
  std::string ledger_file;  // none: no ledger
  std::string trace_file;   // none: no trace
  std::string prices_file;  // none: the published prices

  int max_running = 8;   // requests that the engine works on at once
  int max_queued = 256;  // requests that wait for that
  size_t max_body_bytes = size_t{16} << 20;
};

// Whether only this machine can reach an address that the server binds to. False for what is no address.
bool IsLoopback(const std::string& host);

Status CheckServerOptions(const ServerOptions& options);

}  // namespace emberkv
