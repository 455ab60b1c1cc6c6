// The three row formats of the cache, and the in-place rounding of activations that shares them.
//
//   kGlobalKv   e2m1 in groups of 16 with an e4m3 scale   n/2 + n/16 bytes   (288 for 512 channels)
//   kIndexKey   e2m1 in groups of 32 with an e8m0 scale   n/2 + n/32 bytes   (68 for 128)
//   kWindowKv   e4m3 in groups of 32 with an e8m0 scale   n + n/32 bytes     (528 for 512)
//
// A packed row is all its codes, then all its scales; for e2m1 the low nibble is the even channel.
// Encoding follows numerics 3.2 (kWindowKv), 3.3 (kIndexKey) and 3.4 (kGlobalKv); decoding what was
// encoded gives values that are exact in bf16. Functions are pure and allocate nothing; any thread
// may call them. The work runs on ActiveIsa() (base/isa.h); row_codec_reference.h is the plain
// scalar twin. Every instruction set gives the twin's bits, for any finite fp32 input and any bytes
// of a row (but which NaN is not promised). Nothing needs to be aligned; nothing outside a row is
// touched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

// Values are part of the stored format: never renumber.
enum class RowFormat : uint8_t { kGlobalKv = 1, kIndexKey = 2, kWindowKv = 3 };

const char* RowFormatName(RowFormat format);

// Channels per scale: 16, 32, 32.
int ScaleGroup(RowFormat format);

// Bytes of one packed row. `channels` must be a positive multiple of 32 (layout checks this).
size_t RowBytes(RowFormat format, int channels);

// Packs `num_rows` rows of `channels` bf16 values held as fp32, `x_stride` floats apart, into rows
// `row_stride` bytes apart. Returns false, with `rows` unspecified, if any value is NaN or
// infinite.
[[nodiscard]] bool EncodeRows(RowFormat format, const float* x, size_t x_stride, int num_rows,
                              int channels, uint8_t* rows, size_t row_stride);

// Unpacks one row into `channels` floats. A NaN scale or code decodes to NaN.
void DecodeRow(RowFormat format, const uint8_t* row, int channels, float* out);

// The same for values held as bf16.
[[nodiscard]] bool EncodeBf16Rows(RowFormat format, const uint16_t* x, size_t x_stride, int num_rows,
                                  int channels, uint8_t* rows, size_t row_stride);

// Unpacks one row into channels / 2 pairs of bf16 values, channel 2i in the upper half of pair i and 2i + 1
// in the lower: what dots of bf16 pairs take in ascending order. What was encoded is exact in bf16; other
// bytes give DecodeRow's values rounded to nearest even.
void DecodeBf16Pairs(RowFormat format, const uint8_t* row, int channels, uint32_t* pairs);

// Quantizes and dequantizes in place, as the model does to linear inputs (kWindowKv: act_quant,
// numerics 3.2) and index queries (kIndexKey): the result equals DecodeRow(EncodeRows(x)).
// Non-finite values give unspecified results and no trap: rows that are stored are checked by
// EncodeRows.
void RoundRows(RowFormat format, float* x, size_t x_stride, int num_rows, int channels);

}  // namespace emberkv
