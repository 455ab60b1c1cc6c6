#include "store/retention_book.h"

#include <algorithm>
#include <cassert>

namespace emberkv {

RetentionBook::RetentionBook(uint64_t budget_bytes, int64_t retention_us)
    : budget_bytes_(budget_bytes), retention_us_(retention_us) {
  assert(retention_us > 0);
}

RetentionBook::Admission RetentionBook::Admit(const BlockHash& key, uint64_t bytes, int64_t now_us,
                                              const Digest& tenant, const StoreLimits& limits) {
  assert(!pages_.contains(key));
  AdvanceTo(now_us);
  if (bytes > budget_bytes_) return {Verdict::kTooLarge, {}};
  // Decided before the first victim goes: a refused page costs nobody else's.
  if (limits.max_bytes > 0) {
    const auto sum = tenants_.find(tenant);
    const uint64_t promised = sum == tenants_.end() ? 0 : sum->second.promised_bytes;
    if (promised > limits.max_bytes || bytes > limits.max_bytes - promised) return {Verdict::kTenantFull, {}};
  }
  if (bytes > budget_bytes_ - promised_bytes_) return {Verdict::kFull, {}};
  Admission admission;
  while (bytes > budget_bytes_ - used_bytes()) admission.victims.push_back(RetireOldest());
  TenantSum& sum = tenants_[tenant];
  sum.tenant = tenant;
  ++sum.pages;
  sum.bytes += bytes;
  Promise(pages_.emplace(key, Page{.bytes = bytes,
                                   .retention_us = RetentionOf(limits),
                                   .tenant = tenant})
              .first);
  return admission;
}

void RetentionBook::Extend(const BlockHash& key, int64_t now_us) {
  AdvanceTo(now_us);
  const auto page = pages_.find(key);
  if (page == pages_.end()) return;
  Unbook(page);
  Promise(page);
}

void RetentionBook::Renew(const BlockHash& key, int64_t now_us, const StoreLimits& limits) {
  const auto page = pages_.find(key);
  if (page == pages_.end()) return;
  page->second.retention_us = RetentionOf(limits);
  Extend(key, now_us);
}

void RetentionBook::Remove(const BlockHash& key) {
  const auto page = pages_.find(key);
  if (page == pages_.end()) return;
  Unbook(page);
  const auto sum = tenants_.find(page->second.tenant);
  sum->second.bytes -= page->second.bytes;
  if (--sum->second.pages == 0) tenants_.erase(sum);
  pages_.erase(page);
}

std::vector<RetentionBook::Retired> RetentionBook::RetireExpired(int64_t now_us) {
  AdvanceTo(now_us);
  std::vector<Retired> retired;
  while (!expired_.empty()) retired.push_back(RetireOldest());
  return retired;
}

uint64_t RetentionBook::promised_bytes(int64_t now_us) {
  AdvanceTo(now_us);
  return promised_bytes_;
}

std::vector<TenantSum> RetentionBook::tenants(int64_t now_us) {
  AdvanceTo(now_us);
  std::vector<TenantSum> sums;
  for (const auto& [tenant, sum] : tenants_) sums.push_back(sum);
  return sums;
}

void RetentionBook::AdvanceTo(int64_t now_us) {
  now_us_ = std::max(now_us_, now_us);
  while (!promised_.empty() && promised_.begin()->first <= now_us_) {
    Page& page = pages_.at(promised_.begin()->second);
    page.is_expired = true;
    promised_bytes_ -= page.bytes;
    tenants_.at(page.tenant).promised_bytes -= page.bytes;
    expired_bytes_ += page.bytes;
    expired_.insert(promised_.extract(promised_.begin()));
  }
}

int64_t RetentionBook::RetentionOf(const StoreLimits& limits) const {
  const int64_t own_us = limits.own_retention_us();
  return own_us > 0 ? own_us : retention_us_;
}

void RetentionBook::Promise(Pages::iterator page) {
  page->second.deadline_us = std::max(page->second.deadline_us, now_us_ + page->second.retention_us);
  page->second.is_expired = false;
  promised_.emplace(page->second.deadline_us, page->first);
  promised_bytes_ += page->second.bytes;
  tenants_.at(page->second.tenant).promised_bytes += page->second.bytes;
}

void RetentionBook::Unbook(Pages::iterator page) {
  Queue& queue = page->second.is_expired ? expired_ : promised_;
  (page->second.is_expired ? expired_bytes_ : promised_bytes_) -= page->second.bytes;
  if (!page->second.is_expired) tenants_.at(page->second.tenant).promised_bytes -= page->second.bytes;
  queue.erase({page->second.deadline_us, page->first});
}

RetentionBook::Retired RetentionBook::RetireOldest() {
  const auto [deadline_us, key] = *expired_.begin();
  Remove(key);
  return {key, deadline_us};
}

}  // namespace emberkv
