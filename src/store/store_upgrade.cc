#include "store/store_upgrade.h"

#include "store/segment_book.h"

namespace emberkv {
namespace {

constexpr size_t kPagesPerLook = 4096;

// Rows of an upgrade that was interrupted go: a build of the version before may have used the store since.
Status WriteTenants(StoreIndex* index) {
  SegmentBook::Tenants tenants;
  BlockHash after;
  while (true) {
    EMBERKV_ASSIGN_OR_RETURN(const auto pages, index->PagesAfter(after, kPagesPerLook));
    if (pages.empty()) break;
    for (const auto& [key, page] : pages) CountPage(page, &tenants[page.tenant]);
    after = pages.back().first;
  }
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<TenantEntry> earlier, index->Tenants());
  IndexBatch batch;
  for (const TenantEntry& entry : earlier) batch.RemoveTenant(entry.tenant);
  for (const auto& [tenant, entry] : tenants) batch.PutTenant(entry);
  return index->Commit(batch);
}

}  // namespace

Status UpgradeStore(const std::string& directory, StoreIndex* index, const Failpoint& failpoint,
                    StoreFormat* format) {
  if (format->version == kStoreFormatVersion) return Status::Ok();
  failpoint("upgrade.before_index");
  EMBERKV_RETURN_IF_ERROR(WriteTenants(index));
  failpoint("upgrade.after_index");
  format->version = kStoreFormatVersion;
  EMBERKV_RETURN_IF_ERROR(WriteFormat(directory, *format));
  failpoint("upgrade.after_format");
  return Status::Ok();
}

}  // namespace emberkv
