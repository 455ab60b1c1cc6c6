// Where a sequence's cache rows lie: views that kernels read through. They own nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

// Rows of one KV source, main KV or index keys, in the pages of a sequence. Row j lies in page
// j / rows_per_block (layout/cache_layout.h).
struct PagedRows {
  const uint8_t* const* pages = nullptr;
  size_t offset = 0;  // of the first row within a page
  int rows_per_block = 1;
  size_t row_bytes = 0;

  const uint8_t* row(int64_t j) const {
    // Rows are numbered in 32 bits (selections), and dividing those takes half the time.
    const uint32_t index = static_cast<uint32_t>(j), per_block = static_cast<uint32_t>(rows_per_block);
    return pages[index / per_block] + offset + static_cast<size_t>(index % per_block) * row_bytes;
  }
};

// Window rows of one layer: positions below `chunk_begin` in a ring of `ring_rows`, the rest in the
// rows just computed, which enter the ring when their attention is done.
struct WindowRows {
  const uint8_t* ring = nullptr;
  const uint8_t* chunk = nullptr;
  int64_t chunk_begin = 0;
  int ring_rows = 1;
  size_t row_bytes = 0;

  const uint8_t* row(int64_t pos) const {
    return pos < chunk_begin ? ring + static_cast<size_t>(pos % ring_rows) * row_bytes
                             : chunk + static_cast<size_t>(pos - chunk_begin) * row_bytes;
  }
};

}  // namespace emberkv
