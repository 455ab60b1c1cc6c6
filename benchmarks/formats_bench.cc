// Row codecs on 512-channel rows, per format and instruction set.
//
//   Decode, Encode, Round   8 rows in L1; counters: cycles a row, times as fast as the scalar
//                           reference, and for Decode the share of the L1 store limit that its
//                           fp32 output takes
//   DecodeFromMemory        rows larger than the caches into one row's buffer; the share of the
//                           DRAM read limit
//
// Limits are printed first. Run with --benchmark_repetitions=5 on a busy machine and read medians.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "base/isa.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"
#include "formats/row_codec_reference.h"
#include "limits.h"

namespace emberkv {
namespace {

constexpr int kChannels = 512;
constexpr int kRows = 8;
constexpr RowFormat kFormats[] = {RowFormat::kGlobalKv, RowFormat::kIndexKey, RowFormat::kWindowKv};

MachineLimits limits;

std::vector<float> RandomRows(int num_rows) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(num_rows * kChannels));
  for (float& v : x) v = RoundToBf16(normal(rng));
  return x;
}

// Rows and their packed form, for the three operations to work on.
struct Sample {
  explicit Sample(RowFormat f) : format(f), row_bytes(RowBytes(f, kChannels)) {
    packed.resize(row_bytes * kRows);
    if (!reference::EncodeRows(format, x.data(), kChannels, kRows, kChannels, packed.data(),
                               row_bytes)) {
      packed.clear();
    }
  }

  RowFormat format;
  size_t row_bytes;
  std::vector<float> x = RandomRows(kRows);
  std::vector<uint8_t> packed;
  std::vector<float> out = std::vector<float>(static_cast<size_t>(kRows * kChannels));
};

using Operation = void (*)(Sample&);

template <auto kDecodeRow>
void Decode(Sample& s) {
  for (size_t r = 0; r < kRows; ++r) {
    kDecodeRow(s.format, &s.packed[r * s.row_bytes], kChannels, &s.out[r * kChannels]);
  }
}

template <auto kEncodeRows>
void Encode(Sample& s) {
  benchmark::DoNotOptimize(
      kEncodeRows(s.format, s.x.data(), kChannels, kRows, kChannels, s.packed.data(), s.row_bytes));
}

// Rounding rounded values again costs the same, so the rows are not refreshed.
template <auto kRoundRows>
void Round(Sample& s) {
  kRoundRows(s.format, s.x.data(), kChannels, kRows, kChannels);
}

double SecondsPerRow(Operation operation, Sample& sample) {
  constexpr int kTimes = 100;
  double best = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const double start = ThreadSeconds();
    for (int i = 0; i < kTimes; ++i) operation(sample);
    best = std::min(best, (ThreadSeconds() - start) / (kTimes * kRows));
  }
  return best;
}

void RunInCache(benchmark::State& state, RowFormat format, Isa isa, Operation operation,
                Operation plain, bool writes_floats) {
  const ScopedIsa scoped(isa);
  Sample sample(format);
  const double plain_seconds = SecondsPerRow(plain, sample);
  const double start = ThreadSeconds();
  for (auto _ : state) {
    operation(sample);
    benchmark::ClobberMemory();
  }
  const int64_t num_rows = state.iterations() * kRows;
  const double seconds = (ThreadSeconds() - start) / static_cast<double>(num_rows);
  state.SetItemsProcessed(num_rows);
  state.counters["cycles_per_row"] = seconds * limits.ghz * 1e9;
  state.counters["x_reference"] = plain_seconds / seconds;
  if (writes_floats) {
    state.counters["of_l1_store"] =
        kChannels * sizeof(float) / seconds / (limits.l1_store_gb_s * 1e9);
  }
}

void RunFromMemory(benchmark::State& state, RowFormat format, Isa isa) {
  const ScopedIsa scoped(isa);
  Sample sample(format);
  const size_t num_rows = (size_t{256} << 20) / sample.row_bytes;
  std::vector<uint8_t> rows(num_rows * sample.row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = sample.packed[i % sample.packed.size()];
  const double start = ThreadSeconds();
  for (auto _ : state) {
    for (size_t r = 0; r < num_rows; ++r) {
      DecodeRow(format, &rows[r * sample.row_bytes], kChannels, sample.out.data());
      benchmark::ClobberMemory();
    }
  }
  const double seconds = (ThreadSeconds() - start) / static_cast<double>(state.iterations());
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(num_rows));
  state.counters["of_dram_read"] =
      static_cast<double>(rows.size()) / seconds / (limits.dram_read_gb_s * 1e9);
}

void Register(RowFormat format, Isa isa) {
  const std::string name = std::string("/") + RowFormatName(format) + "/" + IsaName(isa);
  benchmark::RegisterBenchmark(("Decode" + name).c_str(), RunInCache, format, isa,
                               Decode<DecodeRow>, Decode<reference::DecodeRow>, true);
  benchmark::RegisterBenchmark(("Encode" + name).c_str(), RunInCache, format, isa,
                               Encode<EncodeRows>, Encode<reference::EncodeRows>, false);
  benchmark::RegisterBenchmark(("Round" + name).c_str(), RunInCache, format, isa, Round<RoundRows>,
                               Round<reference::RoundRows>, false);
  benchmark::RegisterBenchmark(("DecodeFromMemory" + name).c_str(), RunFromMemory, format, isa)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace emberkv

int main(int argc, char** argv) {
  using namespace emberkv;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  limits = ProbeMachineLimits();
  std::fprintf(stderr,
               "limits: %.2f GHz, fp32 FMA %.0f GFLOP/s, store L1 %.0f and L2 %.0f GB/s, DRAM read "
               "%.1f GB/s\n",
               limits.ghz, limits.fma_gflops, limits.l1_store_gb_s, limits.l2_store_gb_s,
               limits.dram_read_gb_s);
  for (RowFormat format : kFormats) {
    for (Isa isa : SupportedIsas()) Register(format, isa);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
