#include "bench/attention_bench.h"

#include <algorithm>
#include <memory>
#include <random>

#include "attention/sparse_attention.h"
#include "base/thread_pool.h"
#include "bench/large_array.h"
#include "bench/limits.h"
#include "bench/linear_rivals.h"
#include "formats/bf16.h"

namespace emberkv {
namespace {

constexpr int kHeads = 64, kDim = 512, kWindow = 128, kTopK = 512, kRowsPerBlock = 128, kTokens = 32;
constexpr int64_t kContext = 1 << 18;  // 75 MB of rows: more than the caches hold
constexpr double kGflopPerToken = 4.0 * kHeads * kDim * (kWindow + kTopK) / 1e9;

std::vector<float> RandomValues(size_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = RoundToBf16(normal(rng));
  return x;
}

// `count` rows of which the first few are packed from random values and the rest are copies.
LargeArray<uint8_t> RandomRows(RowFormat format, int64_t count, std::mt19937& rng) {
  constexpr int64_t kDistinct = 1000;
  const size_t row_bytes = RowBytes(format, kDim);
  const int distinct = static_cast<int>(std::min(count, kDistinct));
  const std::vector<float> x = RandomValues(static_cast<size_t>(distinct) * kDim, rng);
  const size_t size = static_cast<size_t>(count) * row_bytes;
  LargeArray<uint8_t> rows = MakeLargeArray<uint8_t>(size);
  (void)!EncodeRows(format, x.data(), kDim, distinct, kDim, rows.get(), row_bytes);
  const size_t encoded = static_cast<size_t>(distinct) * row_bytes;
  for (size_t i = encoded; i < size; ++i) rows[i] = rows[i - encoded];
  return rows;
}

// Tokens that see the same window and different rows of one long context.
struct Tokens {
  std::mt19937 rng{1};
  LargeArray<uint8_t> window = RandomRows(RowFormat::kWindowKv, kWindow, rng);
  LargeArray<uint8_t> global = RandomRows(RowFormat::kGlobalKv, kContext, rng);
  std::vector<const uint8_t*> pages;
  std::vector<float> q = RandomValues(kHeads * kDim, rng), sink = RandomValues(kHeads, rng);
  std::vector<std::vector<int32_t>> selected{kTokens};
  ThreadPool pool;
  std::vector<SparseAttention> scratch;
  std::vector<float> out;

  explicit Tokens(int threads) : pool(threads), scratch(static_cast<size_t>(threads)) {
    const size_t row_bytes = RowBytes(RowFormat::kGlobalKv, kDim);
    for (int64_t j = 0; j < kContext; j += kRowsPerBlock) {
      pages.push_back(global.get() + static_cast<size_t>(j) * row_bytes);
    }
    for (std::vector<int32_t>& rows : selected) {
      while (rows.size() < kTopK) rows.push_back(static_cast<int32_t>(rng() % kContext));
      std::sort(rows.begin(), rows.end());
    }
    out.resize(static_cast<size_t>(threads) * q.size());
  }

  void Attend() {
    pool.ParallelFor(kTokens, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t t = begin; t < end; ++t) {
        AttentionQuery query{q.data(),
                             kHeads,
                             kDim,
                             sink.data(),
                             kWindow,
                             {},
                             kContext - kWindow,
                             kContext,
                             {},
                             selected[static_cast<size_t>(t)]};
        query.window = {window.get(), window.get(), kContext, kWindow,
                        RowBytes(RowFormat::kWindowKv, kDim)};
        query.global = {pages.data(), 0, kRowsPerBlock, RowBytes(RowFormat::kGlobalKv, kDim)};
        scratch[static_cast<size_t>(thread)].Run(query, out.data() + static_cast<size_t>(thread) * q.size());
      }
    });
  }
};

}  // namespace

std::vector<Measurement> BenchAttention(int rounds, int threads) {
  const auto tokens = std::make_shared<Tokens>(threads);
  MeasurementSpec spec;
  spec.name = "sparse attention, 64 heads x 512, 128 FP8 + 512 FP4 rows";
  spec.unit = "GFLOP/s";
  spec.threads = threads;
  spec.subject = {"sparse attention", kGflopPerToken * kTokens, [tokens] { tokens->Attend(); }};
  spec.limit = Bf16DotLimit(threads);
  // Scores of a token whose rows were decoded to fp32 before: half of the products, none of the rest.
  spec.rival = OpenBlasRival({kWindow + kTopK, kDim, kHeads, kGflopPerToken / 2}, 1, threads);
  spec.goal = 0.82;
  spec.uses_thread_time = threads == 1;
  Measurement result = Measure(spec, rounds);
  if (spec.rival) result.note = "the rival multiplies rows that were decoded before";
  return {result};
}

}  // namespace emberkv
