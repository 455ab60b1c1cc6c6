// Kernels that pass over scores, one table per instruction set. Internal to attention/.
#pragma once

#include <cstdint>

namespace emberkv {

// A key is a score and its position in one number: the score's bits so that greater is better, then
// the inverted position, so that of equal scores the lower position is greater.
inline int32_t PositionOfKey(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

struct SelectionKernels {
  // Appends to keys the scores in (low, high), of positions first + i for i from `begin` on. Stops
  // before `n` when fewer than 64 places are free and returns the i it came to. A `high` that is
  // NaN bounds nothing.
  int64_t (*collect)(const float* scores, int64_t begin, int64_t n, float low, float high,
                     int32_t first, uint64_t* keys, int capacity, int* count);
  // out[b] = the greatest of scores [8 b, 8 b + 8).
  void (*max_of_8)(const float* scores, int64_t blocks, float* out);
};

#define EMBERKV_DECLARE_SELECTION_KERNELS(isa)     \
  namespace isa {                                  \
  extern const SelectionKernels kSelectionKernels; \
  }
EMBERKV_DECLARE_SELECTION_KERNELS(portable)
EMBERKV_DECLARE_SELECTION_KERNELS(avx2)
EMBERKV_DECLARE_SELECTION_KERNELS(avx512)
#undef EMBERKV_DECLARE_SELECTION_KERNELS

const SelectionKernels& ActiveSelectionKernels();

}  // namespace emberkv
