#include "bench/formats_bench.h"

#include <memory>
#include <random>
#include <string>

#include "base/thread_pool.h"
#include "bench/large_array.h"
#include "bench/limits.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr int kChannels = 512;
constexpr size_t kPairs = kChannels / 2;
constexpr size_t kCachedRows = 8;  // 2 KiB packed, 8 KiB of bf16
constexpr size_t kMemoryRows = 200'000;
constexpr int kTimes = 2000;

// Global rows as bf16, packed and decoded.
struct Rows {
  static constexpr RowFormat kFormat = RowFormat::kGlobalKv;
  size_t row_bytes = RowBytes(kFormat, kChannels);
  std::vector<uint16_t> x;
  LargeArray<uint8_t> packed;
  LargeArray<uint32_t> pairs;

  explicit Rows(size_t count)
      : packed(MakeLargeArray<uint8_t>(count * row_bytes)), pairs(MakeLargeArray<uint32_t>(count * kPairs)) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < kCachedRows * kChannels; ++i) x.push_back(FloatToBf16(normal(rng)));
    Encode();
    const size_t encoded = kCachedRows * row_bytes;
    for (size_t i = encoded; i < count * row_bytes; ++i) packed[i] = packed[i - encoded];
  }

  void Encode() {
    (void)!EncodeBf16Rows(kFormat, x.data(), kChannels, kCachedRows, kChannels, packed.get(), row_bytes);
  }
  void Decode(size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      DecodeBf16Pairs(kFormat, &packed[r * row_bytes], kChannels, &pairs[r * kPairs]);
    }
  }
};

Measurement FromMemory(int rounds, int threads) {
  struct Shared {
    explicit Shared(int n) : pool(n) {}
    ThreadPool pool;
    Rows rows{kMemoryRows};
  };
  const auto shared = std::make_shared<Shared>(threads);
  MeasurementSpec spec;
  spec.name = "FP4 row decode to bf16, DRAM to DRAM, bytes in and out";
  spec.unit = "GB/s";
  spec.threads = threads;
  spec.subject = {"decode", static_cast<double>(kMemoryRows * (shared->rows.row_bytes + kPairs * 4)) / 1e9,
                  [shared] {
                    shared->pool.ParallelFor(kMemoryRows, 4096, [&](int64_t begin, int64_t end, int) {
                      shared->rows.Decode(static_cast<size_t>(begin), static_cast<size_t>(end));
                    });
                  }};
  spec.limit = DramReadLimit(threads);
  spec.goal = 0.90;
  spec.uses_thread_time = threads == 1;
  return Measure(spec, rounds);
}

// `work` handles kCachedRows rows. The limit is the goal itself: so many cycles of the core for a row.
Measurement InCache(const std::string& name, int cycles, const std::function<void()>& work, int rounds) {
  MeasurementSpec spec;
  spec.name = name;
  spec.unit = "Mrow/s";
  spec.subject = {name, kTimes * kCachedRows / 1e6, [work] {
                    for (int i = 0; i < kTimes; ++i) work();
                  }};
  spec.uses_thread_time = true;
  Measurement result = Measure(spec, rounds);
  const double ghz = CoreGhz();
  result.limit_name = std::to_string(cycles) + " cycles a row";
  result.limit = ghz * 1e3 / cycles;
  result.ratio = result.ratio_least = result.ratio_most = result.achieved / result.limit;
  result.goal = 1.0;
  result.note = std::to_string(static_cast<int>(ghz * 1e3 / result.achieved + 0.5)) + " cycles a row";
  return result;
}

}  // namespace

std::vector<Measurement> BenchFormats(int rounds, int threads) {
  std::vector<Measurement> results = {FromMemory(rounds, threads)};
  if (threads > 1) return results;
  constexpr int kDecodeCycles = 140, kEncodeCycles = 390;
  const auto rows = std::make_shared<Rows>(kCachedRows);
  results.push_back(InCache(
      "FP4 row decode to bf16, in cache", kDecodeCycles, [rows] { rows->Decode(0, kCachedRows); }, rounds));
  results.push_back(InCache(
      "FP4 row encode from bf16, in cache", kEncodeCycles, [rows] { rows->Encode(); }, rounds));
  return results;
}

}  // namespace emberkv
