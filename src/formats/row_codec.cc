#include "formats/row_codec.h"

#include "base/isa.h"
#include "formats/row_kernels.h"

namespace emberkv {
namespace {

const RowKernels& Kernels() { return EMBERKV_FOR_ACTIVE_ISA(kRowKernels); }

int KernelIndex(RowFormat format) { return static_cast<int>(format) - 1; }

}  // namespace

const char* RowFormatName(RowFormat format) {
  switch (format) {
    case RowFormat::kGlobalKv:
      return "global_kv";
    case RowFormat::kIndexKey:
      return "index_key";
    case RowFormat::kWindowKv:
      return "window_kv";
  }
  return "unknown";
}

int ScaleGroup(RowFormat format) { return format == RowFormat::kGlobalKv ? 16 : 32; }

size_t RowBytes(RowFormat format, int channels) {
  const int code_bytes = format == RowFormat::kWindowKv ? channels : channels / 2;
  return static_cast<size_t>(code_bytes + channels / ScaleGroup(format));
}

bool EncodeRows(RowFormat format, const float* x, size_t x_stride, int num_rows, int channels,
                uint8_t* rows, size_t row_stride) {
  return Kernels().encode[KernelIndex(format)](x, x_stride, num_rows, channels, rows, row_stride);
}

void DecodeRow(RowFormat format, const uint8_t* row, int channels, float* out) {
  Kernels().decode[KernelIndex(format)](row, channels, out);
}

bool EncodeBf16Rows(RowFormat format, const uint16_t* x, size_t x_stride, int num_rows, int channels,
                    uint8_t* rows, size_t row_stride) {
  return Kernels().encode_bf16[KernelIndex(format)](x, x_stride, num_rows, channels, rows, row_stride);
}

void DecodeBf16Pairs(RowFormat format, const uint8_t* row, int channels, uint32_t* pairs) {
  Kernels().decode_bf16[KernelIndex(format)](row, channels, pairs);
}

void RoundRows(RowFormat format, float* x, size_t x_stride, int num_rows, int channels) {
  Kernels().round[KernelIndex(format)](x, x_stride, num_rows, channels);
}

}  // namespace emberkv
