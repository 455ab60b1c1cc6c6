// LocalStore's promises: how long a page is kept, and how much of a tenant's.
#include <algorithm>
#include <utility>

#include "store/local_store.h"

namespace emberkv {
namespace {

constexpr size_t kPagesPerLook = 4096;

}  // namespace

int64_t LocalStore::PromiseUntil(int64_t own_retention_us) const {
  const int64_t default_us = options_.retention.count();
  const int64_t retention_us = own_retention_us > 0 ? own_retention_us : default_us;
  // The same part of every retention, so that deadlines are about as many whatever it is.
  const int64_t steps = std::max<int64_t>(default_us / options_.deadline_step.count(), 1);
  const int64_t step = own_retention_us > 0 ? std::max<int64_t>(retention_us / steps, 1)
                                            : options_.deadline_step.count();
  return (time_.NowMicros() + retention_us + step - 1) / step * step;
}

int64_t LocalStore::PromiseUntil() const {
  const int64_t longest_us = longest_retention_us_;
  return std::max(PromiseUntil(0), longest_us > options_.retention.count() ? PromiseUntil(longest_us) : 0);
}

bool LocalStore::NeedsExtending(const PageEntry& entry) const {
  return entry.deadline_us < PromiseUntil(entry.retention_us);
}

// Whether the tenant's promised pages would exceed its limit with this one. `promised`: what they come to, with
// those placed by this Put, which has append_mutex_ and so is the only one.
bool LocalStore::IsBeyondLimit(const PageRecord& page, uint64_t record_bytes, PromisedBytes* promised) {
  const uint64_t max_bytes = page.limits.max_bytes;
  const auto [known, is_new] = promised->try_emplace(page.tenant, 0);
  if (is_new) {
    const std::lock_guard lock(tally_mutex_);
    known->second = book_.promised_bytes(page.tenant, time_.NowMicros());
  }
  return max_bytes > 0 && (known->second > max_bytes || record_bytes > max_bytes - known->second);
}

// Takes what the tenants have from their rows. Where these do not come to what the segments hold, as in a store
// of a build that had none, every page is counted once.
Status LocalStore::AdoptTenants() {
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<TenantEntry> known, index_->Tenants());
  for (const TenantEntry& tenant : known) book_.SetTenant(tenant);
  if (!book_.is_balanced()) {
    book_.SetTenants(CountTenants());
    IndexBatch batch;
    for (const TenantEntry& tenant : known) batch.RemoveTenant(tenant.tenant);
    for (const auto& [tenant, entry] : book_.tenants()) batch.PutTenant(entry);
    (void)index_->Commit(batch);  // if it fails, the next opening counts again
  }
  for (const auto& [tenant, entry] : book_.tenants()) {
    longest_retention_us_ = std::max<int64_t>(longest_retention_us_, entry.longest_retention_us);
  }
  return Status::Ok();
}

// As far as the rows can be read: a damaged one costs a tenant's limit, not the store.
SegmentBook::Tenants LocalStore::CountTenants() const {
  SegmentBook::Tenants tenants;
  BlockHash after;
  while (true) {
    const auto pages = index_->PagesAfter(after, kPagesPerLook);
    if (!pages.ok() || pages->empty()) return tenants;
    for (const auto& [key, entry] : *pages) {
      TenantEntry& tenant = tenants[entry.tenant];
      tenant.tenant = entry.tenant;
      CountPage(entry, &tenant);
    }
    after = pages->back().first;
  }
}

}  // namespace emberkv
