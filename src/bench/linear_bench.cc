#include "bench/linear_bench.h"

#include <memory>
#include <random>
#include <string>

#include "base/thread_pool.h"
#include "bench/limits.h"
#include "bench/linear_rivals.h"
#include "formats/bf16.h"
#include "linear/multiply.h"
#include "model/moe.h"

namespace emberkv {
namespace {

constexpr size_t kBeyondCaches = size_t{240}
                                 << 20;  // together, matrices of this size come from memory

PackedMatrix RandomMatrix(WeightKind kind, int rows, int cols, std::mt19937* rng) {
  const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  std::vector<uint8_t> bytes(n * 2);
  std::vector<uint8_t> scales(n / 32);
  for (uint8_t& b : bytes)
    b = static_cast<uint8_t>((*rng)() & 0xbf);  // as e4m3 and bf16, of modest size
  for (uint8_t& s : scales) s = static_cast<uint8_t>(118 + (*rng)() % 4);
  switch (kind) {
    case WeightKind::kFp8:
      return PackedMatrix::FromFp8(rows, cols, bytes.data(), scales.data());
    case WeightKind::kFp4:
      return PackedMatrix::FromFp4(rows, cols, bytes.data(), scales.data());
    case WeightKind::kBf16:
      for (size_t i = 1; i < bytes.size(); i += 2)
        bytes[i] = static_cast<uint8_t>((bytes[i] & 0x80) | 0x3d);
      return PackedMatrix::FromBf16(rows, cols, bytes.data());
    case WeightKind::kF32:
      break;
  }
  return PackedMatrix();
}

std::vector<float> RandomInput(int rows, int cols, std::mt19937* rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  for (float& v : x) v = RoundToBf16(normal(*rng));
  return x;
}

struct ProductCase {
  std::string name;
  WeightKind kind;
  int rows, cols, m;
  double goal;
};

Measurement BenchProduct(const ProductCase& c, int rounds, int threads, ThreadPool* pool) {
  std::mt19937 rng(1);
  const bool streams = c.m == 1;  // bound by memory, counted in bytes
  std::vector<PackedMatrix> weights = {RandomMatrix(c.kind, c.rows, c.cols, &rng)};
  const size_t wanted = c.m <= 8 ? kBeyondCaches : 4 * weights[0].bytes();
  while (weights.size() * weights[0].bytes() < wanted) weights.push_back(weights[0]);
  const std::vector<float> x = RandomInput(c.m, c.cols, &rng);
  std::vector<float> y(static_cast<size_t>(c.m) * static_cast<size_t>(c.rows));
  const double operations = 2.0 * c.rows * c.cols * c.m / 1e9;
  const double amount = streams ? static_cast<double>(weights[0].bytes()) / 1e9 : operations;

  MeasurementSpec spec;
  spec.name = c.name + " " + std::to_string(c.rows) + " x " + std::to_string(c.cols) +
              ", M = " + std::to_string(c.m);
  spec.unit = streams ? "GB/s" : "GFLOP/s";
  spec.threads = threads;
  spec.goal = c.goal;
  spec.uses_thread_time = threads == 1;
  spec.subject = {"linear", amount * static_cast<double>(weights.size()), [&] {
                    for (const PackedMatrix& w : weights) {
                      Multiply(w, x.data(), static_cast<size_t>(c.cols), c.m, y.data(),
                               static_cast<size_t>(c.rows), Rounding::kBf16, *pool);
                    }
                  }};
  spec.limit = streams ? DramReadLimit(threads) : Bf16DotLimit(threads);
  const RivalProduct product = {c.rows, c.cols, c.m, amount};
  if (!streams) spec.rival = OneDnnRival(product, threads);
  if (!spec.rival) spec.rival = OpenBlasRival(product, streams ? 2 : 1, threads);
  Measurement m = Measure(spec, rounds);
  if (streams && spec.rival) m.note = "rival counted in our bytes: a ratio of times";
  return m;
}

// One layer's experts, all with the same values: only where their bytes lie matters.
MoeWeights RandomExperts(const ModelConfig& config, int intermediate, std::mt19937* rng) {
  MoeWeights weights;
  weights.gate = RandomMatrix(WeightKind::kBf16, config.n_routed_experts, config.hidden_size, rng);
  weights.bias.assign(static_cast<size_t>(config.n_routed_experts), 0.0f);
  ExpertWeights expert;
  expert.w1 = RandomMatrix(WeightKind::kFp4, intermediate, config.hidden_size, rng);
  expert.w3 = expert.w1;
  expert.w2 = RandomMatrix(WeightKind::kFp4, config.hidden_size, intermediate, rng);
  weights.experts.assign(static_cast<size_t>(config.n_routed_experts), expert);
  weights.shared.w1 = RandomMatrix(WeightKind::kFp8, intermediate, config.hidden_size, rng);
  weights.shared.w3 = weights.shared.w1;
  weights.shared.w2 = RandomMatrix(WeightKind::kFp8, config.hidden_size, intermediate, rng);
  return weights;
}

// The whole step against its products alone, each expert with as many rows as the router gave it.
Measurement BenchMoe(int rows, int rounds, int threads, ThreadPool* pool) {
  std::mt19937 rng(2);
  ModelConfig config;
  config.hidden_size = 5120;
  config.n_routed_experts = 32;
  config.num_experts_per_tok = 6;
  config.routed_scaling_factor = 1.5;
  config.swiglu_limit = 10.0;
  constexpr int kIntermediate = 2304;
  const MoeWeights weights = RandomExperts(config, kIntermediate, &rng);
  Step step(pool);
  step.rows.resize(static_cast<size_t>(rows));
  const std::vector<float> x = RandomInput(rows, config.hidden_size, &rng);
  const auto run_step = [&] {
    step.scratch.x = x;
    RunMoe(weights, config, &step);
  };
  run_step();
  std::vector<int> rows_of(weights.experts.size());
  for (int r = 0; r < rows; ++r) {
    const float* logits =
        step.scratch.router.data() + static_cast<size_t>(r * config.n_routed_experts);
    for (int e : RouteRow(logits, weights.bias, config).experts) ++rows_of[static_cast<size_t>(e)];
  }
  std::vector<float> hidden(static_cast<size_t>(rows) * kIntermediate), out(x.size());
  const auto run_expert = [&](const ExpertWeights& expert, int n) {
    for (const PackedMatrix* w : {&expert.w1, &expert.w3}) {
      Multiply(*w, x.data(), static_cast<size_t>(config.hidden_size), n, hidden.data(),
               kIntermediate, Rounding::kBf16, *pool);
    }
    Multiply(expert.w2, hidden.data(), kIntermediate, n, out.data(),
             static_cast<size_t>(config.hidden_size), Rounding::kBf16, *pool);
  };
  MeasurementSpec spec;
  spec.name = "MoE step, 6 of 32 experts, " + std::to_string(rows) + " rows";
  spec.unit = "steps/s";
  spec.threads = threads;
  spec.goal = 0.90;
  spec.uses_thread_time = threads == 1;
  spec.subject = {"MoE step", 1, run_step};
  spec.limit = Contender{"its products", 1, [&] {
                           for (size_t e = 0; e < rows_of.size(); ++e) {
                             if (rows_of[e] > 0) run_expert(weights.experts[e], rows_of[e]);
                           }
                           run_expert(weights.shared, rows);
                         }};
  return Measure(spec, rounds);
}

}  // namespace

std::vector<Measurement> BenchLinear(int rounds, int threads) {
  ThreadPool pool(threads);
  const ProductCase cases[] = {
      {"FP8 wq_b", WeightKind::kFp8, 32768, 1280, 1, 0.92},
      {"FP8 wo_b", WeightKind::kFp8, 5120, 8192, 1, 0.92},
      {"FP4 w1", WeightKind::kFp4, 2304, 5120, 1, 0.88},
      {"bf16 head rows", WeightKind::kBf16, 8192, 5120, 1, 0.92},
      {"FP8 wq_a", WeightKind::kFp8, 1280, 5120, 8, 0.84},
      {"FP8 wq_b", WeightKind::kFp8, 32768, 1280, 8, 0.84},
      {"FP4 w1", WeightKind::kFp4, 2304, 5120, 8, 0.84},
      {"FP8 wq_a", WeightKind::kFp8, 1280, 5120, 128, 0.88},
      {"FP8 wq_b", WeightKind::kFp8, 32768, 1280, 128, 0.88},
      {"FP4 w1", WeightKind::kFp4, 2304, 5120, 128, 0.88},
  };
  std::vector<Measurement> measurements;
  for (const ProductCase& c : cases)
    measurements.push_back(BenchProduct(c, rounds, threads, &pool));
  for (int rows : {1, 8, 128}) measurements.push_back(BenchMoe(rows, rounds, threads, &pool));
  return measurements;
}

}  // namespace emberkv
