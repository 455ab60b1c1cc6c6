#include "engine/tenant.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/mapped_file.h"

namespace emberkv {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr const char* kFileName = "tenant_secret";

Result<std::string> RandomBytes() {
  std::string bytes(kSecretBytes, '\0');
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Unavailable("the system gives no random bytes for the tenants' secret");
  }
  return bytes;
}

Status SystemError(const char* what, const std::string& path) {
  return Unavailable(fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

// Writes `bytes` durably under a name of its own, then gives it `path`: a crash leaves a whole file or none.
Status WriteOwnerOnly(const std::string& path, const std::string& bytes) {
  const std::string fresh = path + ".new";
  const int file = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return SystemError("create", fresh);
  const bool is_written =
      write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && fsync(file) == 0;
  const Status status = is_written ? Status::Ok() : SystemError("write", fresh);
  close(file);
  EMBERKV_RETURN_IF_ERROR(status);
  if (rename(fresh.c_str(), path.c_str()) != 0) return SystemError("rename", fresh);
  return Status::Ok();
}

}  // namespace

Digest TenantMark(std::string_view secret, std::string_view name) {
  return name.empty() ? Digest{} : TenantSalt(secret, name);
}

Digest TenantKeyRoot(const IdentityFields& identity, std::string_view secret, const TenantName& tenant) {
  IdentityFields fields = identity;
  if (!tenant.name.empty() || !tenant.cache_salt.empty()) {
    fields.tenant_salt = TenantSalt(secret, tenant.name, tenant.cache_salt);
  }
  return KeyRoot(fields);
}

Result<std::string> TenantSecret(const std::string& store_dir) {
  if (store_dir.empty()) return RandomBytes();
  const std::string path = (std::filesystem::path(store_dir) / kFileName).string();
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    EMBERKV_ASSIGN_OR_RETURN(std::string secret, ReadTextFile(path, kSecretBytes));
    if (secret.size() == kSecretBytes) return secret;
    return DataLoss(fmt::format("{} has {} bytes; allowed: {}. Restore it, or erase the store: its pages of "
                                  "tenants cannot be found without it",
                                  path, secret.size(), kSecretBytes));
  }
  EMBERKV_ASSIGN_OR_RETURN(std::string secret, RandomBytes());
  EMBERKV_RETURN_IF_ERROR(WriteOwnerOnly(path, secret));
  return secret;
}

}  // namespace emberkv
