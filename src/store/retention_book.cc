#include "store/retention_book.h"

#include <algorithm>
#include <cassert>

namespace emberkv {

RetentionBook::RetentionBook(uint64_t budget_bytes, int64_t retention_us)
    : budget_bytes_(budget_bytes), retention_us_(retention_us) {
  assert(retention_us > 0);
}

RetentionBook::Admission RetentionBook::Admit(const BlockHash& key, uint64_t bytes,
                                              int64_t now_us) {
  assert(!pages_.contains(key));
  AdvanceTo(now_us);
  if (bytes > budget_bytes_) return {Verdict::kTooLarge, {}};
  // Decided before the first victim goes: a refused page costs nobody else's.
  if (bytes > budget_bytes_ - promised_bytes_) return {Verdict::kFull, {}};
  Admission admission;
  while (bytes > budget_bytes_ - used_bytes()) admission.victims.push_back(RetireOldest());
  Promise(pages_.emplace(key, Page{.bytes = bytes}).first);
  return admission;
}

void RetentionBook::Extend(const BlockHash& key, int64_t now_us) {
  AdvanceTo(now_us);
  const auto page = pages_.find(key);
  if (page == pages_.end()) return;
  Unbook(page);
  Promise(page);
}

void RetentionBook::Remove(const BlockHash& key) {
  const auto page = pages_.find(key);
  if (page == pages_.end()) return;
  Unbook(page);
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

void RetentionBook::AdvanceTo(int64_t now_us) {
  now_us_ = std::max(now_us_, now_us);
  while (!promised_.empty() && promised_.begin()->first <= now_us_) {
    Page& page = pages_.at(promised_.begin()->second);
    page.is_expired = true;
    promised_bytes_ -= page.bytes;
    expired_bytes_ += page.bytes;
    expired_.insert(promised_.extract(promised_.begin()));
  }
}

void RetentionBook::Promise(Pages::iterator page) {
  page->second.deadline_us = now_us_ + retention_us_;
  page->second.is_expired = false;
  promised_.emplace(page->second.deadline_us, page->first);
  promised_bytes_ += page->second.bytes;
}

void RetentionBook::Unbook(Pages::iterator page) {
  Queue& queue = page->second.is_expired ? expired_ : promised_;
  (page->second.is_expired ? expired_bytes_ : promised_bytes_) -= page->second.bytes;
  queue.erase({page->second.deadline_us, page->first});
}

RetentionBook::Retired RetentionBook::RetireOldest() {
  const auto [deadline_us, key] = *expired_.begin();
  Remove(key);
  return {key, deadline_us};
}

void MissReasons::Record(const BlockHash& key, GetOutcome reason) {
  if (capacity_ == 0) return;
  Forget(key);
  const uint64_t serial = next_serial_++;
  reasons_.emplace(key, Reason{reason, serial});
  ++counts_[reason];
  order_.emplace_back(key, serial);
  while (order_.size() > capacity_) {
    const auto oldest = reasons_.find(order_.front().first);
    if (oldest != reasons_.end() && oldest->second.serial == order_.front().second) Erase(oldest);
    order_.pop_front();
  }
}

void MissReasons::Forget(const BlockHash& key) {
  const auto reason = reasons_.find(key);
  if (reason != reasons_.end()) Erase(reason);
}

GetOutcome MissReasons::ReasonOf(const BlockHash& key) const {
  const auto reason = reasons_.find(key);
  return reason == reasons_.end() ? GetOutcome::kNeverSeen : reason->second.outcome;
}

size_t MissReasons::count(GetOutcome reason) const {
  const auto count = counts_.find(reason);
  return count == counts_.end() ? 0 : count->second;
}

void MissReasons::Erase(std::unordered_map<BlockHash, Reason, DigestHash>::iterator reason) {
  --counts_[reason->second.outcome];
  reasons_.erase(reason);
}

}  // namespace emberkv
