#include "store/record_checksum.h"

#define XXH_INLINE_ALL  // built here, for this instruction set, and with a state on the stack
#include <xxhash.h>

namespace emberkv::EMBERKV_ISA {

void ChecksumOfRuns(const ByteRun* runs, size_t num_runs, uint8_t out[kChecksumBytes]) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (size_t i = 0; i < num_runs; ++i) XXH3_128bits_update(&state, runs[i].data, runs[i].bytes);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  static_assert(sizeof canonical == kChecksumBytes);
  for (size_t i = 0; i < kChecksumBytes; ++i) out[i] = canonical.digest[i];
}

}  // namespace emberkv::EMBERKV_ISA
