// Loops that do one thing as fast as an instruction set allows. Internal to bench/: limits.h makes
// contenders of them. Any thread may run them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emberkv {

struct LimitProbes {
  // `times` rounds of independent chains; *_operations is what one round counts (a multiply-add
  // counts 2).
  void (*fma)(int64_t times);
  double fma_operations;
  void (*bf16_dot)(int64_t times);  // nullptr where the set has no such instruction
  double bf16_dot_operations;
  void (*int8_dot)(int64_t times);  // nullptr likewise
  double int8_dot_operations;
  // `bytes` is a multiple of 512, p aligned to 64.
  void (*load)(const uint8_t* p, size_t bytes);
};

#define EMBERKV_DECLARE_LIMIT_PROBES(isa) \
  namespace isa {                         \
  extern const LimitProbes kLimitProbes;  \
  }
EMBERKV_DECLARE_LIMIT_PROBES(portable)
EMBERKV_DECLARE_LIMIT_PROBES(avx2)
EMBERKV_DECLARE_LIMIT_PROBES(avx512)
EMBERKV_DECLARE_LIMIT_PROBES(avx512dot)
#undef EMBERKV_DECLARE_LIMIT_PROBES

}  // namespace emberkv
