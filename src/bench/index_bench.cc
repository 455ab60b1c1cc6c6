#include "bench/index_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "attention/index_select.h"
#include "base/thread_pool.h"
#include "bench/limits.h"
#include "bench/linear_rivals.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr int kHeads = 32, kDim = 128, kRowsPerBlock = 128, kTopK = 512, kBlocks = 2048,
              kBlockSize = 8;
constexpr int64_t kContext = 1 << 20;
constexpr int64_t kPrefillContext = 1 << 17;
constexpr int kRivalKeys = 1 << 17;
constexpr double kOperations = 2.0 * kHeads * kDim / 1e9;  // per query and key

// Keys of a long context and queries that see them all. Exponents of the scale groups of a key, and
// of those of a query beside what its values bring, differ by up to `key_spread` and
// `query_spread`.
struct Scan {
  std::vector<uint8_t> rows;
  std::vector<const uint8_t*> pages;
  std::vector<float> q, w;
  std::vector<int64_t> visible;
  std::vector<std::vector<int32_t>> selected, candidates;
  std::vector<IndexGroup> groups;

  Scan(int64_t n, int queries, int key_spread, int query_spread) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    const size_t row_bytes = RowBytes(RowFormat::kIndexKey, kDim);
    rows.resize(static_cast<size_t>(n) * row_bytes);
    for (int64_t j = 0; j < n; ++j) {
      uint8_t* row = rows.data() + static_cast<size_t>(j) * row_bytes;
      if (j % kRowsPerBlock == 0) pages.push_back(row);
      for (int i = 0; i < kDim / 2; i += 4) {
        const uint32_t codes = static_cast<uint32_t>(rng());
        std::memcpy(row + i, &codes, 4);
      }
      for (int g = 0; g < kDim / 32; ++g) {
        row[kDim / 2 + g] = static_cast<uint8_t>(125 - key_spread / 2 +
                                                 static_cast<int>(rng() % 1000) % (key_spread + 1));
      }
    }
    q.resize(static_cast<size_t>(queries) * kHeads * kDim);
    for (float& v : q) v = RoundToBf16(normal(rng));
    for (size_t g = 0; g < q.size() / 32; ++g) {
      const float unit =
          std::ldexp(1.0f, static_cast<int>(rng() % 1000) % (query_spread + 1) - query_spread / 2);
      for (size_t i = 0; i < 32; ++i) q[32 * g + i] *= unit;
    }
    RoundRows(RowFormat::kIndexKey, q.data(), kDim, queries * kHeads, kDim);
    w.resize(static_cast<size_t>(queries) * kHeads);
    for (float& v : w) v = RoundToBf16(normal(rng) / 64);
    visible.assign(static_cast<size_t>(queries), n);
    selected.resize(visible.size());
    candidates.resize(visible.size());
    const PagedRows keys{pages.data(), 0, kRowsPerBlock, row_bytes};
    for (int i = 0; i < queries; i += IndexScanner::kMaxQueries) {
      const size_t first = static_cast<size_t>(i);
      const size_t count = static_cast<size_t>(std::min(IndexScanner::kMaxQueries, queries - i));
      groups.push_back({{q.data() + first * kHeads * kDim,
                         w.data() + first * kHeads,
                         {visible.data() + first, count},
                         kHeads,
                         kDim},
                        keys,
                        selected.data() + first,
                        candidates.data() + first});
    }
  }
};

struct ScanCase {
  std::string name;
  int64_t keys;
  int queries, key_spread, query_spread;
  CandidateUse use;
  double goal;
};

// Scores, and as the model does, the choice of rows with them.
Measurement BenchScan(const ScanCase& c, int rounds, int threads, ThreadPool* pool) {
  Scan scan(c.keys, c.queries, c.key_spread, c.query_spread);
  std::vector<IndexScanner> scanners(static_cast<size_t>(threads));
  const IndexLimits limits{kTopK, {kBlocks, kBlockSize}, c.use};
  MeasurementSpec spec;
  spec.name = c.name;
  spec.unit = "GOP/s";
  spec.threads = threads;
  spec.subject = {"index scan", kOperations * static_cast<double>(c.keys) * c.queries,
                  [&] { SelectRows(scan.groups, limits, scanners, pool); }};
  spec.limit = Int8DotLimit(threads);
  spec.rival = OpenBlasRival({kHeads, kDim, kRivalKeys, kOperations * kRivalKeys}, 1, threads);
  spec.goal = c.goal;
  spec.uses_thread_time = threads == 1;
  return Measure(spec, rounds);
}

// Rows within the candidate pool, as the Reindex layers choose them: the keys lie wherever the pool
// says.
Measurement BenchReindex(int64_t context, int rounds, int threads, ThreadPool* pool) {
  Scan scan(context, 1, 3, 0);
  std::mt19937 rng(2);
  std::vector<int32_t> all(static_cast<size_t>(context / kBlockSize));
  std::iota(all.begin(), all.end(), 0);
  std::sample(all.begin(), all.end(), std::back_inserter(scan.candidates[0]), kBlocks, rng);
  std::vector<IndexScanner> scanners(static_cast<size_t>(threads));
  const IndexLimits limits{kTopK, {kBlocks, kBlockSize}, CandidateUse::kFilter};
  constexpr int kTimes = 16;
  MeasurementSpec spec;
  spec.name = "top-512 of 16,384 candidates, " + std::to_string(context >> 10) + "K positions";
  spec.unit = "GOP/s";
  spec.threads = threads;
  spec.subject = {
      "index scan",
      kOperations * kTimes * static_cast<double>(scan.candidates[0].size()) * kBlockSize, [&] {
        for (int i = 0; i < kTimes; ++i) SelectRows(scan.groups, limits, scanners, pool);
      }};
  spec.limit = Int8DotLimit(threads);
  spec.uses_thread_time = threads == 1;
  return Measure(spec, rounds);
}

constexpr const char* kDistributions[] = {"gauss",     "ascending", "descending",   "1,000 levels",
                                          "all equal", "clustered", "99.9 % zeros", "half -inf"};

std::vector<float> Scores(size_t distribution) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> scores(kContext);
  for (size_t i = 0; i < scores.size(); ++i) {
    float& v = scores[i];
    switch (distribution) {
      case 0:
        v = normal(rng);
        break;
      case 1:
        v = static_cast<float>(i);
        break;
      case 2:
        v = -static_cast<float>(i);
        break;
      case 3:
        v = static_cast<float>(rng() % 1000);
        break;
      case 4:
        v = 1.0f;
        break;
      case 5:
        v = i >= 700000 && i < 700600 ? 5.0f + normal(rng) : 0.1f * normal(rng);
        break;
      case 6:
        v = rng() % 1000 == 0 ? normal(rng) : 0.0f;
        break;
      default:
        v = rng() % 2 == 0 ? -std::numeric_limits<float>::infinity() : normal(rng);
        break;
    }
  }
  return scores;
}

// std::partial_sort of the indices, ties to the lowest.
Contender PartialSort(std::shared_ptr<const std::vector<float>> scores, int k, double amount) {
  const auto order = std::make_shared<std::vector<int32_t>>(scores->size());
  return {"std::partial_sort", amount, [=] {
            std::iota(order->begin(), order->end(), 0);
            std::partial_sort(order->begin(), order->begin() + k, order->end(),
                              [&](int32_t a, int32_t b) {
                                const float x = (*scores)[static_cast<size_t>(a)],
                                            y = (*scores)[static_cast<size_t>(b)];
                                return x > y || (x == y && a < b);
                              });
          }};
}

std::string Microseconds(double per_second) {
  return std::to_string(static_cast<int>(std::lround(1e6 / per_second))) +
         " us, at most 150 wanted";
}

// A choice from 1,048,576 scores, some times over so that a turn takes milliseconds.
template <class Choose>
Measurement BenchChoice(const std::string& name, std::optional<Contender> rival, int rounds,
                        const Choose& choose) {
  constexpr int kTimes = 40;
  MeasurementSpec spec;
  spec.name = name;
  spec.unit = "choices/s";
  spec.subject = {"selection", kTimes, [&] {
                    for (int i = 0; i < kTimes; ++i) choose();
                  }};
  spec.rival = std::move(rival);
  spec.uses_thread_time = true;
  Measurement m = Measure(spec, rounds);
  m.note = Microseconds(m.achieved);
  return m;
}

void BenchSelection(int rounds, std::vector<Measurement>* lines) {
  std::vector<int32_t> chosen;
  for (size_t d = 0; d < std::size(kDistributions); ++d) {
    const auto scores = std::make_shared<const std::vector<float>>(Scores(d));
    const std::string of = std::string(", ") + kDistributions[d];
    TopK topk;
    lines->push_back(BenchChoice("top-512 of 1M" + of, PartialSort(scores, kTopK, 1), rounds, [&] {
      chosen.clear();
      topk.Reset(kTopK);
      topk.Push(scores->data(), kContext, 0);
      topk.Finish(&chosen);
    }));
    CandidatePool pool;
    lines->push_back(BenchChoice("2,048 blocks of 8 of 1M" + of, std::nullopt, rounds, [&] {
      chosen.clear();
      pool.Reset(kBlocks, kBlockSize);
      pool.Push(scores->data(), kContext, 0);
      pool.Finish(&chosen);
    }));
  }
}

}  // namespace

std::vector<Measurement> BenchIndex(int rounds, int threads) {
  ThreadPool pool(threads);
  const double goal = threads == 1 ? 0.80 : 0.78;
  std::vector<Measurement> lines;
  for (const ScanCase& c : {ScanCase{"index scan of 1M positions, 1 query", kContext, 1, 3, 0,
                                     CandidateUse::kChoose, goal},
                            ScanCase{"index scan of 1M positions, any exponents", kContext, 1, -15,
                                     14, CandidateUse::kChoose, 0.60},
                            ScanCase{"index scan of 128K positions, 64 queries", kPrefillContext,
                                     64, -2, 1, CandidateUse::kNone, 0.84}}) {
    lines.push_back(BenchScan(c, rounds, threads, &pool));
  }
  for (const int64_t context : {int64_t{1} << 15, kContext}) {
    lines.push_back(BenchReindex(context, rounds, threads, &pool));
  }
  if (threads == 1) BenchSelection(rounds, &lines);
  return lines;
}

}  // namespace emberkv
