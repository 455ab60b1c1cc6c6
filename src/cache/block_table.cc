#include "cache/block_table.h"

#include <fmt/format.h>

#include <utility>

namespace emberkv {

Status BlockTable::Reserve(int64_t num_tokens) {
  const size_t had = handles_.size();
  const size_t wanted = PagesOf(num_tokens);
  while (handles_.size() < wanted) {
    Result<PageHandle> page = pool_->Acquire();
    if (!page.ok()) {
      Resize(had);
      return page.status().WithContext(
          fmt::format("{} tokens need {} pages and hold {}", num_tokens, wanted, had));
    }
    pages_.push_back(page->bytes());
    writable_pages_.push_back(page->bytes());
    handles_.push_back(std::move(page).value());
  }
  return Status::Ok();
}

void BlockTable::Trim(int64_t num_tokens) {
  const size_t wanted = PagesOf(num_tokens);
  if (wanted < handles_.size()) Resize(wanted);
}

void BlockTable::AppendShared(PageHandle page) {
  pages_.push_back(page.bytes());
  writable_pages_.push_back(nullptr);
  handles_.push_back(std::move(page));
}

void BlockTable::ReplaceShared(size_t block, PageHandle page) {
  pages_[block] = page.bytes();
  writable_pages_[block] = nullptr;
  handles_[block] = std::move(page);
}

size_t BlockTable::PagesOf(int64_t num_tokens) const {
  return static_cast<size_t>((num_tokens + block_size_ - 1) / block_size_);
}

void BlockTable::Resize(size_t num_pages) {
  handles_.resize(num_pages);
  pages_.resize(num_pages);
  writable_pages_.resize(num_pages);
}

}  // namespace emberkv
