// The row kernels of one instruction set, as row_codec.cc dispatches them.
//
// row_kernels_strict.cc fills one table per instruction set that it is compiled for. Arguments mean
// what they mean in row_codec.h; the arrays are indexed by KernelIndex(format).
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

inline constexpr int kNumRowFormats = 3;

struct RowKernels {
  bool (*encode[kNumRowFormats])(const float* x, size_t x_stride, int num_rows, int channels,
                                 uint8_t* rows, size_t row_stride);
  bool (*encode_bf16[kNumRowFormats])(const uint16_t* x, size_t x_stride, int num_rows, int channels,
                                      uint8_t* rows, size_t row_stride);
  void (*decode[kNumRowFormats])(const uint8_t* row, int channels, float* out);
  void (*decode_bf16[kNumRowFormats])(const uint8_t* row, int channels, uint32_t* pairs);
  void (*round[kNumRowFormats])(float* x, size_t x_stride, int num_rows, int channels);
};

namespace portable {
extern const RowKernels kRowKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const RowKernels kRowKernels;
}
namespace avx512 {
extern const RowKernels kRowKernels;
}
#endif

}  // namespace emberkv
