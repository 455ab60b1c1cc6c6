// The checksum of a record's bytes: XXH3-128 in its canonical byte order, built once per instruction set,
// because warm reads run at its speed. All sets give the same value. Internal to store/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

inline constexpr size_t kChecksumBytes = 16;

// Bytes that are hashed after those of the run before. Plain pointers: no inline function of a library may
// come out of a source that is compiled for more than the baseline CPU.
struct ByteRun {
  const uint8_t* data;
  size_t bytes;
};

#define EMBERKV_DECLARE_CHECKSUM(isa)                                                    \
  namespace isa {                                                                        \
  void ChecksumOfRuns(const ByteRun* runs, size_t num_runs, uint8_t out[kChecksumBytes]); \
  }
EMBERKV_DECLARE_CHECKSUM(portable)
EMBERKV_DECLARE_CHECKSUM(avx2)
EMBERKV_DECLARE_CHECKSUM(avx512)
#undef EMBERKV_DECLARE_CHECKSUM

}  // namespace emberkv
