// The pages of one sequence in the order of its blocks: block i holds tokens [i, i + 1) x block_size.
//
// Owned and used by one thread at a time, as its sequence is. It pins its pages; the pool outlives it.
// Pages that others may read too (prefix hits, sealed blocks) are held read-only: their writable pointer
// is null, so that a write to one is a crash and never another session's wrong bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "cache/page_pool.h"

namespace emberkv {

class BlockTable {
 public:
  BlockTable(PagePool* pool, int block_size) : pool_(pool), block_size_(block_size) {}

  // Acquires the pages that `num_tokens` tokens need and the table lacks, or fails and leaves the
  // table as it was.
  Status Reserve(int64_t num_tokens);

  // Lets go of the pages that `num_tokens` tokens do not need.
  void Trim(int64_t num_tokens);

  // Adds a page that is complete and shared as the next block.
  void AppendShared(PageHandle page);

  // Holds `page`, which is complete and shared, for the block in place of the page it has.
  void ReplaceShared(size_t block, PageHandle page);

  const PageHandle& page(size_t block) const { return handles_[block]; }

  size_t num_pages() const { return handles_.size(); }

  // One pointer per page, valid until the next call that changes the table.
  const uint8_t* const* pages() const { return pages_.data(); }
  uint8_t* const* writable_pages() const { return writable_pages_.data(); }

 private:
  size_t PagesOf(int64_t num_tokens) const;
  void Resize(size_t num_pages);

  PagePool* pool_;  // not owned
  int block_size_;
  std::vector<PageHandle> handles_;
  std::vector<const uint8_t*> pages_;
  std::vector<uint8_t*> writable_pages_;
};

}  // namespace emberkv
