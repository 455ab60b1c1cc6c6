#include "bench/limit_probes.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace emberkv::EMBERKV_ISA {
namespace {

#if defined(__AVX512F__)
using Register = __m512;
#elif defined(__AVX2__)
using Register = __m256;
#else
typedef float Register __attribute__((vector_size(16)));
#endif
constexpr size_t kRegisterBytes = sizeof(Register);
constexpr int kRegisterFloats = static_cast<int>(kRegisterBytes / 4);
constexpr int kChains = 12;  // more than latency times width on any CPU at hand

// One register the compiler knows nothing about: what is done with it stays.
Register Opaque() {
  Register r = {};
#if defined(__AVX2__)
  asm volatile("" : "+v"(r));
#elif defined(__x86_64__)
  asm volatile("" : "+x"(r));
#endif
  return r;
}

#if defined(__AVX2__)
#define EMBERKV_KEEP(r) asm volatile("" : : "v"(r))
#elif defined(__x86_64__)
#define EMBERKV_KEEP(r) asm volatile("" : : "x"(r))
#else
#define EMBERKV_KEEP(r) asm volatile("" : : "g"(&r) : "memory")
#endif

// The instructions are written out: a compiler would see that the chains are equal, or that nobody
// reads them.
template <class Operation>
inline __attribute__((always_inline)) void RunChains(int64_t times, const Operation& operation) {
  Register chains[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) chains[i] = Opaque();
  const Register a = Opaque(), b = Opaque();
  for (int64_t t = 0; t < times; ++t) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) operation(&chains[i], a, b);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) EMBERKV_KEEP(chains[i]);
}

void Fma(int64_t times) {
  RunChains(
      times, [](Register * chain, Register a, Register b) __attribute__((always_inline)) {
#if defined(__AVX2__)
        asm volatile("vfmadd231ps %1, %2, %0" : "+v"(*chain) : "v"(a), "v"(b));
#elif defined(__x86_64__)
        asm volatile("mulps %1, %0\n\taddps %2, %0" : "+x"(*chain) : "x"(a), "x"(b));
#else
        *chain = *chain * a + b;
        EMBERKV_KEEP(*chain);
#endif
      });
}

#if defined(__AVX512BF16__)
void Bf16Dot(int64_t times) {
  RunChains(
      times, [](Register * chain, Register a, Register b) __attribute__((always_inline)) {
        asm volatile("vdpbf16ps %1, %2, %0" : "+v"(*chain) : "v"(a), "v"(b));
      });
}
#endif

#if defined(__AVX512VNNI__)
void Int8Dot(int64_t times) {
  RunChains(
      times, [](Register * chain, Register a, Register b) __attribute__((always_inline)) {
        asm volatile("vpdpbusd %1, %2, %0" : "+v"(*chain) : "v"(a), "v"(b));
      });
}
#endif

// The lines in ascending order: prefetchers follow those, and lose others. Four sums, so that none
// waits.
void LoadAll(const uint8_t* p, size_t bytes) {
  Register sums[4] = {Opaque(), Opaque(), Opaque(), Opaque()};
  for (size_t i = 0; i < bytes; i += 8 * kRegisterBytes) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) {
      const uint8_t* q = p + i + j * kRegisterBytes;
#if defined(__AVX2__)
      asm volatile("vxorps %1, %0, %0"
                   : "+v"(sums[j % 4])
                   : "m"(*reinterpret_cast<const Register*>(q)));
#elif defined(__x86_64__)
      asm volatile("xorps %1, %0" : "+x"(sums[j % 4]) : "m"(*reinterpret_cast<const Register*>(q)));
#else
      sums[j % 4] += *reinterpret_cast<const Register*>(q);
      EMBERKV_KEEP(sums[j % 4]);
#endif
    }
  }
}

constexpr double kFmaOperations = 2.0 * kChains * kRegisterFloats;

}  // namespace

const LimitProbes kLimitProbes = {Fma,     kFmaOperations,
#if defined(__AVX512BF16__)
                                  Bf16Dot, 2 * kFmaOperations,
#else
                                   nullptr, 0,
#endif
#if defined(__AVX512VNNI__)
                                  Int8Dot, 4 * kFmaOperations,
#else
                                   nullptr, 0,
#endif
                                  LoadAll};

#undef EMBERKV_KEEP

}  // namespace emberkv::EMBERKV_ISA
