#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/cache_tools.h"
#include "cli/quantity.h"
#include "engine/engine.h"

namespace emberkv {
namespace {

constexpr std::string_view kNamePrefix = "name:";

// None for "all".
Result<std::optional<Digest>> ParseTenant(std::string_view text, const std::string& directory) {
  if (text == "all") return std::optional<Digest>();
  if (text == "local") return std::optional<Digest>(Digest{});
  if (text.starts_with(kNamePrefix) && text.size() > kNamePrefix.size()) {
    EMBERKV_ASSIGN_OR_RETURN(const std::string secret, TenantSecret(directory));
    return std::optional<Digest>(TenantMark(secret, text.substr(kNamePrefix.size())));
  }
  Digest tenant;
  bool is_hex = text.size() == 2 * tenant.bytes.size();
  for (size_t i = 0; is_hex && i < tenant.bytes.size(); ++i) {
    const char* digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, tenant.bytes[i], 16);
    is_hex = error == std::errc() && end == digits + 2;
  }
  if (is_hex) return std::optional<Digest>(tenant);
  return InvalidArgument(
      fmt::format("tenant is '{}'; allowed: local, all, name:NAME, or 64 hex digits", text));
}

}  // namespace

Result<std::string> ErasePages(LocalStore& store, const std::string& directory, std::string_view tenant,
                               bool json) {
  EMBERKV_ASSIGN_OR_RETURN(const std::optional<Digest> wanted, ParseTenant(tenant, directory));
  std::set<Digest> tenants;
  if (wanted) {
    tenants.insert(*wanted);
  } else {
    EMBERKV_RETURN_IF_ERROR(VisitPages(store, [&](const StoreIndex::KeyedEntry& page) {
      tenants.insert(page.second.tenant);
      return true;
    }));
  }
  uint64_t erased = 0;
  for (const Digest& owner : tenants) {
    const Result<uint64_t> gone = store.EraseTenant(owner);
    if (!gone.ok()) {
      return Unavailable(fmt::format("tenant {}: {}", TenantText(owner), gone.status().message()));
    }
    erased += *gone;
  }
  const uint64_t left = store.Stats().pages;
  if (json) {
    const nlohmann::ordered_json object = {{"erased", erased}, {"pages", left}};
    return object.dump() + "\n";
  }
  return fmt::format("{} pages erased; {} stay\n", Grouped(erased), Grouped(left));
}

}  // namespace emberkv
