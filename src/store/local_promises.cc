// LocalStore's promises: until when a page is kept, and how much of a tenant's.
#include <algorithm>
#include <unordered_set>

#include "store/local_store.h"

namespace emberkv {

// The step grows with the retention, so that a tenant's deadlines are about as many whatever it is.
int64_t LocalStore::PromiseUntil(int64_t own_retention_us) const {
  const int64_t usual_us = options_.retention.count();
  const int64_t retention_us = own_retention_us > 0 ? own_retention_us : usual_us;
  const int64_t steps_of_longer = (retention_us - 1) / usual_us + 1;
  const int64_t step = options_.deadline_step.count() * steps_of_longer;
  const int64_t deadline = time_.NowMicros() + retention_us;
  return (deadline + step - 1) / step * step;
}

bool LocalStore::NeedsExtending(const PageEntry& page) const {
  return page.deadline_us < PromiseUntil(page.retention_us);
}

// Whether the tenant's promised pages would take more than it may have with this one. `promised`: what those
// of the tenants of this Put come to, the ones it placed included.
bool LocalStore::IsTenantFull(const RecordWrite& write, TenantBytes* promised) {
  const uint64_t max_bytes = write.page.limits.max_bytes;
  const auto [known, is_new] = promised->try_emplace(write.page.tenant, 0);
  if (is_new) {
    const std::lock_guard lock(tally_mutex_);
    known->second = book_.promised_bytes(write.page.tenant, time_.NowMicros());
  }
  return max_bytes > 0 && (known->second > max_bytes || write.record_bytes() > max_bytes - known->second);
}

// Which of the keys are there. Their deadlines are extended, durably unless the index refuses writes.
std::vector<bool> LocalStore::Extend(std::span<const BlockHash> keys) { return Renew(keys, {}); }

// Likewise; the pages get these retentions, where there are such. No deadline becomes earlier.
std::vector<bool> LocalStore::Renew(std::span<const BlockHash> keys, std::span<const int64_t> retentions_us) {
  std::vector<bool> is_there(keys.size());
  if (keys.empty()) return is_there;
  // New pages, which most are, wait for no commit.
  std::vector<std::optional<PageEntry>> entries = index_->Find(keys);
  if (std::ranges::none_of(entries, [](const auto& entry) { return entry.has_value(); })) return is_there;
  const std::lock_guard lock(book_mutex_);
  entries = index_->Find(keys);
  BookEdit edit(&book_);
  std::unordered_set<BlockHash, DigestHash> renewed;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!entries[i]) continue;
    is_there[i] = true;
    const PageEntry& page = *entries[i];
    const int64_t retention_us = retentions_us.empty() ? page.retention_us : retentions_us[i];
    const int64_t deadline_us = std::max(page.deadline_us, PromiseUntil(retention_us));
    if (deadline_us == page.deadline_us && retention_us == page.retention_us) continue;
    if (renewed.insert(keys[i]).second) edit.PromisePage(keys[i], page, deadline_us, retention_us);
  }
  if (edit.is_empty()) return is_there;
  At("extend.before_index");
  (void)Commit(edit);
  At("extend.after_index");
  return is_there;
}

void LocalStore::Touch(std::span<const BlockHash> keys) { (void)Extend(keys); }

}  // namespace emberkv
