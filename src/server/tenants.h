// Who may use the server: tenants by their API keys, from a file that holds hashes only.
//
// A TenantTable is an immutable value. Tenants holds the current one and replaces it on Reload; any thread
// may call anything, and a tenant that was authenticated stays valid for as long as somebody holds it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace emberkv {

struct TenantLimits {
  int64_t max_concurrent = 0;     // requests that run or wait; 0: no limit
  int64_t tokens_per_minute = 0;  // of prompts and answers; 0: no limit
  int64_t max_stored_bytes = 0;   // of promised pages in the store; 0: no limit
  std::chrono::microseconds retention{0};  // of pages stored from now on; 0: the store's
};

struct Tenant {
  std::string name;          // "" for the local user of a server without keys
  bool is_operator = false;  // may look at what all tenants do
  TenantLimits limits;
};

// 64 lower-case hex digits: what a keys file holds in place of the key.
std::string ApiKeyHash(std::string_view key);

// A fresh key: 256 bits from the system, printable. The status tells when the system has none.
Result<std::string> NewApiKey();

class TenantTable {
 public:
  // The form is described in docs/serving.md. Fields that are not known are refused.
  static Result<TenantTable> Parse(std::string_view json);

  // The tenant of a key, null when there is none. Takes as long whichever key it is.
  std::shared_ptr<const Tenant> Find(std::string_view key) const;

  size_t num_tenants() const { return tenants_.size(); }

 private:
  std::vector<std::shared_ptr<const Tenant>> tenants_;
  std::vector<std::pair<std::string, size_t>> keys_;  // hash, index of the tenant
};

class Tenants {
 public:
  // Nobody needs a key: everybody is the local user, who is an operator.
  Tenants();
  static Result<std::unique_ptr<Tenants>> Load(const std::string& path);

  // `authorization`: the header's value, "" without one. Refused with a message for the client.
  Result<std::shared_ptr<const Tenant>> Authenticate(std::string_view authorization) const;

  // Reads the file again. A file that is wrong changes nothing.
  Status Reload();

  bool needs_keys() const { return !path_.empty(); }
  size_t num_tenants() const;

 private:
  std::shared_ptr<const TenantTable> table() const;

  const std::string path_;
  const std::shared_ptr<const Tenant> local_;

  mutable std::mutex mutex_;
  std::shared_ptr<const TenantTable> table_;  // guarded by mutex_; never null where keys are needed

  Tenants(std::string path, TenantTable table);
};

}  // namespace emberkv
