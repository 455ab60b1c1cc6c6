#include "cache/page_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace emberkv {
namespace {

constexpr size_t kPageAlignment = 64;

}  // namespace

PageHandle::PageHandle(PageHandle&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      page_(other.page_),
      bytes_(std::exchange(other.bytes_, nullptr)) {}

PageHandle& PageHandle::operator=(PageHandle&& other) noexcept {
  if (this != &other) {
    Unpin();
    pool_ = std::exchange(other.pool_, nullptr);
    page_ = other.page_;
    bytes_ = std::exchange(other.bytes_, nullptr);
  }
  return *this;
}

PageHandle PageHandle::Share() const {
  assert(pool_ != nullptr);
  pool_->Pin(page_);
  return PageHandle(pool_, page_, bytes_);
}

bool PageHandle::is_shared() const { return pool_ != nullptr && pool_->IsShared(page_); }

void PageHandle::Unpin() {
  if (pool_ == nullptr) return;
  std::exchange(pool_, nullptr)->Unpin(page_);
  bytes_ = nullptr;
}

PagePool::PagePool(size_t page_bytes, size_t stride, uint32_t capacity, uint8_t* memory)
    : page_bytes_(page_bytes), stride_(stride), capacity_(capacity), memory_(memory) {}

PagePool::~PagePool() {
  assert(in_use_ == 0);
  munmap(memory_, size_t{capacity_} * stride_);
}

Result<std::unique_ptr<PagePool>> PagePool::Make(size_t page_bytes, size_t budget_bytes) {
  if (page_bytes == 0 || page_bytes > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument(
        fmt::format("page size is {} bytes; allowed: 1 to {}", page_bytes,
                    std::numeric_limits<uint32_t>::max()));
  }
  const size_t stride = (page_bytes + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
  const size_t capacity =
      std::min<size_t>(budget_bytes / stride, std::numeric_limits<uint32_t>::max());
  if (capacity == 0) {
    return InvalidArgument(fmt::format(
        "the KV budget is {} bytes, and one page takes {}; allowed: at least one page",
        budget_bytes, stride));
  }
  void* memory = mmap(nullptr, capacity * stride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Unavailable(fmt::format("cannot reserve {} bytes of address space for the KV pool: {}",
                                   capacity * stride,
                                   std::generic_category().message(errno)));
  }
  // Rows are gathered from all over the pool: huge pages spare address look-ups. Without them it is slower only.
  static_cast<void>(madvise(memory, capacity * stride, MADV_HUGEPAGE));
  return std::unique_ptr<PagePool>(new PagePool(page_bytes, stride, static_cast<uint32_t>(capacity),
                                                static_cast<uint8_t*>(memory)));
}

Result<PageHandle> PagePool::Acquire() { return Take(true); }

Result<PageHandle> PagePool::AcquireUncleared() { return Take(false); }

Result<PageHandle> PagePool::Take(bool clears) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (in_use_ == capacity_) {
    lock.unlock();
    if (!reclaim_ || !reclaim_()) {
      return ResourceExhausted(fmt::format(
          "all {} pages of the KV pool ({} bytes each) are in use; end a session or give the pool "
          "a larger budget",
          capacity_, page_bytes_));
    }
    lock.lock();
  }
  uint32_t page = 0;
  // Used pages first: memory that is resident already.
  const bool is_used = !free_.empty();
  if (is_used) {
    page = free_.back();
    free_.pop_back();
  } else {
    page = static_cast<uint32_t>(pins_.size());
    pins_.push_back(0);
  }
  pins_[page] = 1;
  high_water_ = std::max(high_water_, ++in_use_);
  lock.unlock();
  if (is_used && clears) std::memset(PageAt(page), 0, page_bytes_);
  return PageHandle(this, page, PageAt(page));
}

void PagePool::Pin(uint32_t page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++pins_[page];
}

void PagePool::Unpin(uint32_t page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--pins_[page] > 0) return;
  free_.push_back(page);
  --in_use_;
}

bool PagePool::IsShared(uint32_t page) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pins_[page] > 1;
}

PagePoolStats PagePool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {page_bytes_, capacity_, in_use_, high_water_};
}

Result<size_t> DefaultPoolBudget() {
  std::ifstream meminfo("/proc/meminfo");  // a file of the kernel: its size is unknown until read
  std::string line;
  while (std::getline(meminfo, line)) {
    constexpr std::string_view kField = "MemAvailable:";
    if (!line.starts_with(kField)) continue;
    const uint64_t kib = std::strtoull(line.c_str() + kField.size(), nullptr, 10);
    if (kib > 0) return static_cast<size_t>(kib * 1024 / 2);
  }
  return Unavailable("/proc/meminfo gives no MemAvailable; give the KV pool a budget");
}

}  // namespace emberkv
