#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/cache_tools.h"
#include "cli/quantity.h"

namespace emberkv {
namespace {

// None for "all".
Result<std::optional<Digest>> ParseTenant(std::string_view text) {
  if (text == "all") return std::optional<Digest>();
  if (text == "local") return std::optional<Digest>(Digest{});
  Digest tenant;
  bool is_hex = text.size() == 2 * tenant.bytes.size();
  for (size_t i = 0; is_hex && i < tenant.bytes.size(); ++i) {
    const char* digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, tenant.bytes[i], 16);
    is_hex = error == std::errc() && end == digits + 2;
  }
  if (is_hex) return std::optional<Digest>(tenant);
  return InvalidArgument(
      fmt::format("tenant is '{}'; allowed: local, all, or 64 hex digits", text));
}

}  // namespace

Result<std::string> ErasePages(LocalStore& store, std::string_view tenant, bool json) {
  EMBERKV_ASSIGN_OR_RETURN(const std::optional<Digest> wanted, ParseTenant(tenant));
  std::map<Digest, uint64_t> pages_of;
  EMBERKV_RETURN_IF_ERROR(VisitPages(store, [&](const StoreIndex::KeyedEntry& page) {
    if (!wanted || *wanted == page.second.tenant) ++pages_of[page.second.tenant];
    return true;
  }));
  uint64_t erased = 0;
  for (const auto& [owner, pages] : pages_of) {
    const uint64_t gone = store.EraseTenant(owner);
    erased += gone;
    if (gone < pages) {
      return Unavailable(
          fmt::format("the index cannot be written: {} of {} pages of tenant {} are erased", gone,
                      pages, TenantText(owner)));
    }
  }
  const uint64_t left = store.Stats().pages;
  if (json) {
    const nlohmann::ordered_json object = {{"erased", erased}, {"pages", left}};
    return object.dump() + "\n";
  }
  return fmt::format("{} pages erased; {} stay\n", Grouped(erased), Grouped(left));
}

}  // namespace emberkv
