// Whose caches are whose: a tenant's key root and mark, from its name under the engine's secret.
//
// The secret lies beside the store, so that salts survive a restart; an engine without a store draws one
// for its lifetime. Pure functions but for the file; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "layout/identity.h"

namespace emberkv {

// Who a session belongs to. The name is the authenticated identity, never a request's claim; "" is the
// local user. The salt divides one tenant's caches further: sessions with different salts share nothing.
struct TenantName {
  std::string name;
  std::string cache_salt;
};

// Marks stored pages as the tenant's, whatever the salt: what EraseTenant goes by. Zero for "".
Digest TenantMark(std::string_view secret, std::string_view name);

// What the tenant's blocks chain from; the root without tenants for "" and no salt.
Digest TenantKeyRoot(const IdentityFields& identity, std::string_view secret, const TenantName& tenant);

// Reads the secret of the store in `store_dir`, or makes one (32 random bytes, readable by its owner only).
// "" stands for no store: a fresh secret.
Result<std::string> TenantSecret(const std::string& store_dir);

}  // namespace emberkv
