#include "bench/limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/isa.h"
#include "base/thread_pool.h"
#include "bench/limit_probes.h"

namespace emberkv {
namespace {

constexpr int64_t kChainRounds = 2'000'000;  // about 7 ms at one instruction a cycle
constexpr int kPiecesPerThread = 16;  // a thread that was held up leaves its pieces to the others

const LimitProbes& WidestProbes() {
#if defined(__x86_64__)
  switch (SupportedIsas().back()) {
    case Isa::kAvx512Dot:
      return avx512dot::kLimitProbes;
    case Isa::kAvx512:
      return avx512::kLimitProbes;
    case Isa::kAvx2:
      return avx2::kLimitProbes;
    case Isa::kPortable:
      break;
  }
#endif
  return portable::kLimitProbes;
}

std::function<void()> OnThreads(int threads, std::function<void(int64_t piece)> body) {
  const auto pool = std::make_shared<ThreadPool>(threads);
  return [pool, threads, body = std::move(body)] {
    pool->ParallelFor(int64_t{threads} * kPiecesPerThread, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t piece = begin; piece < end; ++piece) body(piece);
    });
  };
}

Contender ChainLimit(const char* name, void (*probe)(int64_t), double operations, int threads) {
  constexpr int64_t kRoundsPerPiece = kChainRounds / kPiecesPerThread;
  const double amount =
      operations * static_cast<double>(kRoundsPerPiece * kPiecesPerThread) * threads / 1e9;
  return {name, amount, OnThreads(threads, [probe](int64_t) { probe(kRoundsPerPiece); })};
}

struct FreeDelete {
  void operator()(uint8_t* p) const { std::free(p); }
};

// On huge pages where the system grants them, like the weights; written once, so that it exists.
std::shared_ptr<uint8_t> TouchedBuffer(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  std::shared_ptr<uint8_t> buffer(static_cast<uint8_t*>(std::aligned_alloc(kHugePage, size)),
                                  FreeDelete());
  if (buffer == nullptr) return nullptr;
  (void)madvise(buffer.get(), size, MADV_HUGEPAGE);
  std::memset(buffer.get(), 1, size);
  return buffer;
}

}  // namespace

Contender FmaLimit(int threads) {
  const LimitProbes& probes = WidestProbes();
  return ChainLimit("fp32 FMA", probes.fma, probes.fma_operations, threads);
}

Contender Bf16DotLimit(int threads) {
  const LimitProbes& probes = WidestProbes();
  if (probes.bf16_dot == nullptr) return FmaLimit(threads);
  return ChainLimit("VDPBF16PS", probes.bf16_dot, probes.bf16_dot_operations, threads);
}

Contender Int8DotLimit(int threads) {
  const LimitProbes& probes = WidestProbes();
  if (probes.int8_dot == nullptr) return FmaLimit(threads);
  return ChainLimit("VPDPBUSD", probes.int8_dot, probes.int8_dot_operations, threads);
}

Contender DramReadLimit(int threads) {
  constexpr size_t kBytes = size_t{256} << 20;
  const std::shared_ptr<uint8_t> buffer = TouchedBuffer(kBytes);
  if (buffer == nullptr) return {"DRAM read", 0, [] {}};
  const size_t pieces = static_cast<size_t>(threads) * kPiecesPerThread;
  const size_t piece_bytes = kBytes / pieces / 4096 * 4096;
  return {"DRAM read", static_cast<double>(piece_bytes * pieces) / 1e9,
          OnThreads(threads, [buffer, piece_bytes, load = WidestProbes().load](int64_t piece) {
            load(buffer.get() + static_cast<size_t>(piece) * piece_bytes, piece_bytes);
          })};
}

double CoreGhz() {
  constexpr int64_t kAdds = 40'000'000;
  const double start = ThreadSeconds();
  uint64_t x = 0;
  for (int64_t i = 0; i < kAdds / 10; ++i) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; ++j) {
      x += 1;
      asm volatile("" : "+r"(x));
    }
  }
  return static_cast<double>(kAdds) / (ThreadSeconds() - start) * 1e-9;
}

}  // namespace emberkv
