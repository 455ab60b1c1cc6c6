#include "store/memory_store.h"

#include <algorithm>
#include <utility>

namespace emberkv {
namespace {

// Map nodes, queue nodes and allocator headers of one page, on top of what it holds.
constexpr uint64_t kPageOverheadBytes = 512;

class FinishedGet : public PendingGet {
 public:
  explicit FinishedGet(std::vector<GetOutcome> outcomes) : outcomes_(std::move(outcomes)) {}
  std::vector<GetOutcome> Wait() override { return outcomes_; }

 private:
  const std::vector<GetOutcome> outcomes_;
};

}  // namespace

MemoryStore::MemoryStore(const MemoryStoreOptions& options, const Clock* clock)
    : budget_bytes_(options.budget_bytes),
      clock_(clock),
      book_(options.budget_bytes, options.retention.count()),
      misses_(options.remembered_misses) {}

uint64_t MemoryStore::StoredBytes(size_t num_tokens, size_t payload_bytes) {
  return payload_bytes + num_tokens * sizeof(int32_t) + kPageOverheadBytes;
}

std::vector<PutOutcome> MemoryStore::Put(std::span<const PageRecord> pages) {
  std::vector<PutOutcome> outcomes;
  outcomes.reserve(pages.size());
  for (const PageRecord& record : pages) outcomes.push_back(PutOne(record));
  return outcomes;
}

PutOutcome MemoryStore::PutOne(const PageRecord& record) {
  const bool is_sound = KeyMatchesParts(record);
  const uint64_t bytes = StoredBytes(record.tokens.size(), record.payload.size());
  {
    const std::lock_guard lock(mutex_);
    if (!is_sound) {
      ++counters_.puts_failed;
      return PutOutcome::kFailed;
    }
    if (bytes > budget_bytes_) {
      ++counters_.puts_refused_too_large;
      return PutOutcome::kRefusedTooLarge;
    }
    if (RenewIfThere(record)) return PutOutcome::kAlreadyThere;
  }
  auto page = std::make_shared<const StoredPage>(StoredPage{
      .parent = record.parent,
      .provenance = record.provenance,
      .tenant = record.tenant,
      .tokens = {record.tokens.begin(), record.tokens.end()},
      .payload = {record.payload.begin(), record.payload.end()},
      .checksum = Sha256(record.payload),
  });
  const std::lock_guard lock(mutex_);
  if (RenewIfThere(record)) return PutOutcome::kAlreadyThere;  // another thread was faster
  return Admit(record, std::move(page));
}

bool MemoryStore::RenewIfThere(const PageRecord& record) {
  if (!pages_.contains(record.key)) return false;
  book_.Renew(record.key, clock_->MonotonicMicros(), record.limits);
  ++counters_.puts_already_there;
  return true;
}

PutOutcome MemoryStore::Admit(const PageRecord& record, PagePtr page) {
  using Verdict = RetentionBook::Verdict;
  const BlockHash& key = record.key;
  const uint64_t bytes = StoredBytes(page->tokens.size(), page->payload.size());
  const auto admission = book_.Admit(key, bytes, clock_->MonotonicMicros(), record.tenant, record.limits);
  if (admission.verdict != Verdict::kAdmitted) {
    const bool is_tenant_full = admission.verdict == Verdict::kTenantFull;
    ++(is_tenant_full ? counters_.puts_refused_tenant_full : counters_.puts_refused_full);
    // A quarantined key stays known as such: that it is also refused now says less.
    if (misses_.ReasonOf(key) != GetOutcome::kQuarantined) {
      misses_.Record(key, GetOutcome::kRefused);
    }
    return is_tenant_full ? PutOutcome::kRefusedTenantFull : PutOutcome::kRefusedFull;
  }
  Retire(admission.victims);
  misses_.Forget(key);
  ++counters_.puts_stored;
  counters_.bytes_written += page->payload.size();
  pages_.emplace(key, std::move(page));
  return PutOutcome::kStored;
}

void MemoryStore::Retire(const std::vector<RetentionBook::Retired>& retired) {
  const int64_t now_us = clock_->MonotonicMicros();
  for (const auto& [key, deadline_us] : retired) {
    pages_.erase(key);
    misses_.Record(key, GetOutcome::kExpired);
    ++(deadline_us <= now_us ? counters_.evicted_expired : counters_.evicted_before_deadline);
  }
}

std::unique_ptr<PendingGet> MemoryStore::Get(std::vector<GetRequest> requests,
                                             std::chrono::milliseconds /*timeout*/) {
  std::vector<GetOutcome> outcomes;
  outcomes.reserve(requests.size());
  for (const GetRequest& request : requests) outcomes.push_back(GetOne(request));
  return std::make_unique<FinishedGet>(std::move(outcomes));
}

GetOutcome MemoryStore::GetOne(const GetRequest& request) {
  const bool is_sound = KeyMatchesParts(request);
  PagePtr page;
  {
    const std::lock_guard lock(mutex_);
    if (!is_sound) {
      ++counters_.get_corrupt;
      return GetOutcome::kCorrupt;
    }
    const auto found = pages_.find(request.key);
    if (found == pages_.end()) {
      ++counters_.get_misses;
      return misses_.ReasonOf(request.key);
    }
    page = found->second;
    // Before it is read: now nobody retires it.
    book_.Extend(request.key, clock_->MonotonicMicros());
  }

  // The request's parts hash to the key, so a page with the same parts does too. The checksum is
  // taken of the copy: what was verified is what the caller gets.
  bool is_verified = page->parent == request.parent && page->provenance == request.provenance &&
                     std::ranges::equal(page->tokens, request.tokens) &&
                     page->payload.size() == request.payload.size();
  if (is_verified) {
    std::ranges::copy(page->payload, request.payload.begin());
    is_verified = Sha256(request.payload) == page->checksum;
  }

  const std::lock_guard lock(mutex_);
  if (is_verified) {
    ++counters_.get_hits;
    counters_.bytes_read += request.payload.size();
    return GetOutcome::kHit;
  }
  ++counters_.get_corrupt;
  const auto found = pages_.find(request.key);
  if (found != pages_.end() && found->second == page) {
    pages_.erase(found);
    book_.Remove(request.key);
    misses_.Record(request.key, GetOutcome::kQuarantined);
  }
  return GetOutcome::kCorrupt;
}

std::vector<bool> MemoryStore::Contains(std::span<const BlockHash> keys) {
  std::vector<bool> there;
  there.reserve(keys.size());
  const std::lock_guard lock(mutex_);
  for (const BlockHash& key : keys) there.push_back(pages_.contains(key));
  return there;
}

void MemoryStore::Touch(std::span<const BlockHash> keys) {
  const std::lock_guard lock(mutex_);
  for (const BlockHash& key : keys) book_.Extend(key, clock_->MonotonicMicros());
}

Result<uint64_t> MemoryStore::EraseTenant(const Digest& tenant) {
  const std::lock_guard lock(mutex_);
  return uint64_t{std::erase_if(pages_, [&](const auto& entry) {
    if (entry.second->tenant != tenant) return false;
    book_.Remove(entry.first);
    return true;
  })};
}

uint64_t MemoryStore::Sweep() {
  const std::lock_guard lock(mutex_);
  const auto retired = book_.RetireExpired(clock_->MonotonicMicros());
  Retire(retired);
  return retired.size();
}

StoreStats MemoryStore::Stats() {
  const std::lock_guard lock(mutex_);
  StoreStats stats = counters_;
  stats.budget_bytes = budget_bytes_;
  stats.used_bytes = book_.used_bytes();
  stats.promised_bytes = book_.promised_bytes(clock_->MonotonicMicros());
  stats.pages = pages_.size();
  stats.tenants = book_.tenants(clock_->MonotonicMicros());
  stats.quarantined = misses_.count(GetOutcome::kQuarantined);
  return stats;
}

bool MemoryStore::DamageForTest(const BlockHash& key,
                                const std::function<void(StoredPage&)>& damage) {
  const std::lock_guard lock(mutex_);
  const auto found = pages_.find(key);
  if (found == pages_.end()) return false;
  auto damaged = std::make_shared<StoredPage>(*found->second);
  damage(*damaged);
  found->second = std::move(damaged);
  return true;
}

}  // namespace emberkv
