// The arithmetic of the retention contract, for stores that free space page by page: which pages
// are promised, whether a new one fits without breaking a promise, and which expired ones make
// room.
//
// Pure accounting: no clock, no I/O, no payloads. A store that frees space in larger pieces (whole
// segments) keeps books of its own. Not thread-safe: the store's mutex protects it. Times are
// microseconds on a scale that never runs backwards; an earlier `now_us` than before is taken as
// before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layout/identity.h"
#include "store/kv_store.h"

namespace emberkv {

class RetentionBook {
 public:
  // `retention_us` is above 0.
  RetentionBook(uint64_t budget_bytes, int64_t retention_us);

  struct Retired {
    BlockHash key;
    int64_t deadline_us = 0;
  };
  enum class Verdict { kAdmitted, kFull, kTenantFull, kTooLarge };
  struct Admission {
    Verdict verdict = Verdict::kAdmitted;
    std::vector<Retired> victims;  // expired pages that are no longer booked; oldest deadline first
  };

  // Books `bytes` for a page that is not booked yet, as just used, or books nothing and retires
  // nothing.
  Admission Admit(const BlockHash& key, uint64_t bytes, int64_t now_us, const Digest& tenant = {},
                  const StoreLimits& limits = {});

  // The page was served: it is promised for its retention from now, even if it had expired.
  void Extend(const BlockHash& key, int64_t now_us);
  // The page was put again: likewise, with the retention it has from now on. No deadline becomes earlier.
  void Renew(const BlockHash& key, int64_t now_us, const StoreLimits& limits);

  void Remove(const BlockHash& key);

  // Takes every expired page off the books; oldest deadline first.
  std::vector<Retired> RetireExpired(int64_t now_us);

  uint64_t used_bytes() const { return promised_bytes_ + expired_bytes_; }
  uint64_t promised_bytes(int64_t now_us);
  size_t pages() const { return pages_.size(); }
  std::vector<TenantSum> tenants(int64_t now_us);

 private:
  struct Page {
    uint64_t bytes = 0;
    int64_t retention_us = 0;
    Digest tenant;
    int64_t deadline_us = 0;
    bool is_expired = false;
  };
  using Queue = std::set<std::pair<int64_t, BlockHash>>;  // by deadline
  using Pages = std::unordered_map<BlockHash, Page, DigestHash>;

  void AdvanceTo(int64_t now_us);
  int64_t RetentionOf(const StoreLimits& limits) const;
  void Promise(Pages::iterator page);
  void Unbook(Pages::iterator page);
  Retired RetireOldest();

  const uint64_t budget_bytes_;
  const int64_t retention_us_;

  int64_t now_us_ = 0;
  Pages pages_;
  Queue promised_;
  Queue expired_;
  uint64_t promised_bytes_ = 0;
  uint64_t expired_bytes_ = 0;
  std::unordered_map<Digest, TenantSum, DigestHash> tenants_;  // with pages
};

}  // namespace emberkv
