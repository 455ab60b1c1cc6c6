// The pool of pages that hold global KV in memory, and the handles that pin them.
//
// A pool reserves its whole budget as address space once; memory becomes resident page by page as
// pages are first used. Thread-safe: any thread may acquire pages and drop handles. The pool owns the
// memory and must outlive its handles. What lies in a page is ordered by those who share its handles.
//
// Whoever keeps pages that nobody needs right now (cache/page_cache.h) gives the pool a way to ask for
// them: a full pool reclaims one before it refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"

namespace emberkv {

class PagePool;

// Pins one page while it lives. The page goes back to the pool when its last handle goes.
class PageHandle {
 public:
  PageHandle() = default;
  PageHandle(PageHandle&& other) noexcept;
  PageHandle& operator=(PageHandle&& other) noexcept;
  ~PageHandle() { Unpin(); }

  // Another handle of the same page. The handle must hold one.
  PageHandle Share() const;

  // Whether other handles pin the same page. "No" stays true while this handle is not shared.
  bool is_shared() const;

  explicit operator bool() const { return pool_ != nullptr; }
  uint8_t* bytes() const { return bytes_; }  // page_bytes() of them, 64-byte aligned

 private:
  friend class PagePool;
  PageHandle(PagePool* pool, uint32_t page, uint8_t* bytes)
      : pool_(pool), page_(page), bytes_(bytes) {}

  void Unpin();

  PagePool* pool_ = nullptr;
  uint32_t page_ = 0;
  uint8_t* bytes_ = nullptr;
};

struct PagePoolStats {
  size_t page_bytes = 0;
  size_t capacity_pages = 0;
  size_t pages_in_use = 0;
  size_t high_water_pages = 0;  // most pages ever in use at once

  size_t capacity_bytes() const { return capacity_pages * page_bytes; }
  size_t bytes_in_use() const { return pages_in_use * page_bytes; }
};

class PagePool {
 public:
  // As many pages of `page_bytes` as `budget_bytes` holds. Refused when that is none.
  static Result<std::unique_ptr<PagePool>> Make(size_t page_bytes, size_t budget_bytes);

  ~PagePool();  // all handles are gone
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page of zeros, so that nothing of an earlier sequence is ever seen. kResourceExhausted, with
  // the numbers, when every page is in use and none can be reclaimed.
  Result<PageHandle> Acquire();

  // The same with whatever the page held before: for callers that overwrite all of it or drop it.
  Result<PageHandle> AcquireUncleared();

  // `reclaim` lets go of a page, or returns false. Any acquiring thread calls it, holding no lock of
  // the pool. Set before other threads acquire.
  void SetReclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  size_t page_bytes() const { return page_bytes_; }
  PagePoolStats stats() const;

 private:
  friend class PageHandle;
  PagePool(size_t page_bytes, size_t stride, uint32_t capacity, uint8_t* memory);

  Result<PageHandle> Take(bool clears);
  uint8_t* PageAt(uint32_t page) const { return memory_ + size_t{page} * stride_; }
  void Pin(uint32_t page);
  void Unpin(uint32_t page);
  bool IsShared(uint32_t page) const;

  // Constant after construction.
  const size_t page_bytes_;
  const size_t stride_;  // page_bytes_ rounded up to the alignment
  const uint32_t capacity_;
  uint8_t* const memory_;
  std::function<bool()> reclaim_;  // constant while pages are acquired

  mutable std::mutex mutex_;
  std::vector<uint32_t> pins_;  // guarded by mutex_: handles of each page used so far
  std::vector<uint32_t> free_;  // guarded by mutex_: pages that were used before
  size_t in_use_ = 0;           // guarded by mutex_
  size_t high_water_ = 0;       // guarded by mutex_
};

// Half of the memory that Linux calls available now: the pool's budget when nobody gives one.
Result<size_t> DefaultPoolBudget();

}  // namespace emberkv
