#include "limits.h"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace emberkv {
namespace {

// Best of several runs, in seconds: caches start cold.
template <class Body>
double BestSeconds(int runs, const Body& body) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const double start = ThreadSeconds();
    body();
    best = std::min(best, ThreadSeconds() - start);
  }
  return best;
}

// Makes the compiler believe that the value is used, at no cost.
template <class T>
void Consume(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

constexpr int64_t kAdds = 100'000'000;

void AddChain() {
  uint64_t x = 0;
  for (int64_t i = 0; i < kAdds / 10; ++i) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; ++j) {
      x += 1;
      asm volatile("" : "+r"(x));
    }
  }
  Consume(x);
}

// The three probes of one instruction set. `Fma` does 2 * kFmaLanes * 12 * n operations.
// Started from different values: equal chains would be computed once.
constexpr int kAccumulators = 12;  // more than latency times width on any CPU at hand

struct Probes {
  int fma_lanes;
  void (*fma)(int64_t n);
  void (*store)(float* p, size_t n, int64_t times);
  void (*load)(const float* p, size_t n);
};

void PlainFma(int64_t n) {
  constexpr int kWidth = 4;
  float a[kAccumulators * kWidth];
  for (int j = 0; j < kAccumulators * kWidth; ++j) a[j] = static_cast<float>(j);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 48
    for (float& x : a) x = x * 0.999f + 1.0f;
  }
  Consume(a);
}

void PlainStore(float* p, size_t n, int64_t times) {
  for (int64_t t = 0; t < times; ++t) {
    std::memset(p, static_cast<int>(t), n * sizeof *p);
    Consume(*p);
  }
}

void PlainLoad(const float* p, size_t n) {
  uint32_t sums[16] = {};
  for (size_t i = 0; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) {
      uint32_t bits;
      std::memcpy(&bits, p + i + j, sizeof bits);
      sums[j] ^= bits;
    }
  }
  Consume(sums);
}

constexpr Probes kPlainProbes = {4, PlainFma, PlainStore, PlainLoad};

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void Avx2Fma(int64_t n) {
  __m256 a[kAccumulators];
  const __m256 factor = _mm256_set1_ps(0.999f), one = _mm256_set1_ps(1.0f);
#pragma GCC unroll 12
  for (int j = 0; j < kAccumulators; ++j) a[j] = _mm256_set1_ps(static_cast<float>(j));
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kAccumulators; ++j) a[j] = _mm256_fmadd_ps(a[j], factor, one);
  }
#pragma GCC unroll 12
  for (int j = 1; j < kAccumulators; ++j) a[0] = _mm256_add_ps(a[0], a[j]);
  Consume(a[0]);
}

__attribute__((target("avx2"))) void Avx2Store(float* p, size_t n, int64_t times) {
  for (int64_t t = 0; t < times; ++t) {
    const __m256 value = _mm256_set1_ps(static_cast<float>(t));
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i += 8) _mm256_store_ps(p + i, value);
    Consume(*p);
  }
}

__attribute__((target("avx2"))) void Avx2Load(const float* p, size_t n) {
  __m256 sums[4] = {};
  for (size_t i = 0; i < n; i += 32) {
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      sums[j] = _mm256_xor_ps(sums[j], _mm256_load_ps(p + i + 8 * j));
    }
  }
  Consume(sums);
}

__attribute__((target("avx512f"))) void Avx512Fma(int64_t n) {
  __m512 a[kAccumulators];
  const __m512 factor = _mm512_set1_ps(0.999f), one = _mm512_set1_ps(1.0f);
#pragma GCC unroll 12
  for (int j = 0; j < kAccumulators; ++j) a[j] = _mm512_set1_ps(static_cast<float>(j));
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kAccumulators; ++j) a[j] = _mm512_fmadd_ps(a[j], factor, one);
  }
#pragma GCC unroll 12
  for (int j = 1; j < kAccumulators; ++j) a[0] = _mm512_add_ps(a[0], a[j]);
  Consume(a[0]);
}

__attribute__((target("avx512f"))) void Avx512Store(float* p, size_t n, int64_t times) {
  for (int64_t t = 0; t < times; ++t) {
    const __m512 value = _mm512_set1_ps(static_cast<float>(t));
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i += 16) _mm512_store_ps(p + i, value);
    Consume(*p);
  }
}

__attribute__((target("avx512f"))) void Avx512Load(const float* p, size_t n) {
  __m512i sums[4] = {};
  for (size_t i = 0; i < n; i += 64) {
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(p + i + 16 * j));
    }
  }
  Consume(sums);
}

constexpr Probes kAvx2Probes = {8, Avx2Fma, Avx2Store, Avx2Load};
constexpr Probes kAvx512Probes = {16, Avx512Fma, Avx512Store, Avx512Load};
#endif

Probes WidestProbes() {
#if defined(__x86_64__)
  switch (SupportedIsas().back()) {
    case Isa::kAvx512:
      return kAvx512Probes;
    case Isa::kAvx2:
      return kAvx2Probes;
    case Isa::kPortable:
      break;
  }
#endif
  return kPlainProbes;
}

struct FreeDelete {
  void operator()(float* p) const { std::free(p); }
};

}  // namespace

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

MachineLimits ProbeMachineLimits() {
  constexpr int kRuns = 5;
  constexpr size_t kBigBytes = size_t{512} << 20;
  const Probes probes = WidestProbes();
  MachineLimits limits;
  limits.ghz = static_cast<double>(kAdds) / BestSeconds(kRuns, AddChain) * 1e-9;

  constexpr int64_t kFmaRounds = 10'000'000;
  const double operations = 2.0 * probes.fma_lanes * kAccumulators * kFmaRounds;
  limits.fma_gflops = operations / BestSeconds(kRuns, [&] { probes.fma(kFmaRounds); }) * 1e-9;

  const std::unique_ptr<float, FreeDelete> buffer(
      static_cast<float*>(std::aligned_alloc(4096, kBigBytes)));
  if (buffer == nullptr) return limits;
  std::memset(buffer.get(), 1, kBigBytes);
  const auto store_rate = [&](size_t bytes) {
    constexpr double kTotalBytes = 4e9;
    const auto times = static_cast<int64_t>(kTotalBytes / static_cast<double>(bytes));
    const double seconds =
        BestSeconds(kRuns, [&] { probes.store(buffer.get(), bytes / sizeof(float), times); });
    return static_cast<double>(bytes) * static_cast<double>(times) / seconds * 1e-9;
  };
  limits.l1_store_gb_s = store_rate(size_t{16} << 10);
  limits.l2_store_gb_s = store_rate(size_t{256} << 10);
  const double seconds =
      BestSeconds(kRuns, [&] { probes.load(buffer.get(), kBigBytes / sizeof(float)); });
  limits.dram_read_gb_s = static_cast<double>(kBigBytes) / seconds * 1e-9;
  return limits;
}

}  // namespace emberkv
