#include "cli/cache_tools.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "cli/quantity.h"

namespace emberkv {
namespace {

constexpr size_t kPagesAtOnce = 1024;

}  // namespace

Result<std::unique_ptr<LocalStore>> OpenStore(const std::string& directory, uint64_t budget_bytes,
                                              const Clock* clock) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::path(directory) / "FORMAT", ignored)) {
    return NotFound(directory + " is no store: it has no FORMAT file");
  }
  LocalStoreOptions options;
  options.directory = directory;
  options.budget_bytes = budget_bytes;
  return LocalStore::Open(std::move(options), clock);
}

Status VisitPages(const LocalStore& store,
                  const std::function<bool(const StoreIndex::KeyedEntry&)>& visit) {
  BlockHash after;
  while (true) {
    EMBERKV_ASSIGN_OR_RETURN(const auto pages, store.List(after, kPagesAtOnce));
    for (const StoreIndex::KeyedEntry& page : pages) {
      if (!visit(page)) return Status::Ok();
    }
    if (pages.size() < kPagesAtOnce) return Status::Ok();
    after = pages.back().first;
  }
}

std::string DeadlineText(int64_t deadline_us, int64_t now_us) {
  const double seconds = static_cast<double>(deadline_us - now_us) / 1e6;
  if (seconds > 0) return Duration(seconds) + " left";
  return fmt::format("expired {} ago", Duration(-seconds));
}

std::string ProvenanceText(Provenance provenance) {
  if (provenance.is_canonical()) return "canonical";
  return fmt::format("replayed@{}", provenance.replayed_at);
}

std::string TenantText(const Digest& tenant) {
  return tenant == Digest{} ? "local" : DigestText(tenant);
}

}  // namespace emberkv
