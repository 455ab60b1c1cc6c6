// The plain scalar twin of row_codec.h: one value at a time, straight from numerics 3.2 to 3.4.
//
// It stays beside the fast paths so that tests and fuzzers can hold them to its bits, and so that a
// reader can see what a row is. Same arguments, same results, same rules; nothing fast calls it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/row_codec.h"

namespace emberkv::reference {

[[nodiscard]] bool EncodeRows(RowFormat format, const float* x, size_t x_stride, int num_rows,
                              int channels, uint8_t* rows, size_t row_stride);

void DecodeRow(RowFormat format, const uint8_t* row, int channels, float* out);

void RoundRows(RowFormat format, float* x, size_t x_stride, int num_rows, int channels);

}  // namespace emberkv::reference
