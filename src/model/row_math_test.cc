#include "model/row_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/isa.h"
#include "formats/bf16.h"

namespace emberkv {
namespace {

std::vector<float> Values(size_t n, float scale, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(n);
  for (float& v : x) v = RoundToBf16(normal(rng));
  return x;
}

// Runs every function on one instruction set and returns all results, one after another.
std::vector<float> RunAll(int n) {
  const RowMath& m = ActiveRowMath();
  const size_t size = static_cast<size_t>(n);
  const std::vector<float> x = Values(size, 1, 1), w = Values(size, 1, 2), g = Values(size, 30, 3);
  const std::vector<float> pre = Values(4, 1, 4), post = Values(4, 1, 5), comb = Values(16, 1, 6);
  std::vector<float> out = {m.sum_squares(x.data(), n), m.triple_dot(x.data(), w.data(), g.data(), n)};
  const auto keep = [&out](const std::vector<float>& v) { out.insert(out.end(), v.begin(), v.end()); };
  std::vector<float> y(size), h = Values(4 * size, 1, 7);
  m.rms_norm(x.data(), w.data(), 1e-20f, n, y.data());
  keep(y);
  m.collapse(h.data(), pre.data(), 4, n, y.data());
  keep(y);
  m.mix_streams(h.data(), y.data(), post.data(), comb.data(), 4, n);
  keep(h);
  m.swiglu(g.data(), x.data(), 10.0f, 0.3f, n, y.data());
  keep(y);
  m.pool_pair(x.data(), g.data(), w.data(), h.data(), n, y.data());
  keep(y);
  m.add_scaled(y.data(), 0.7f, x.data(), n);
  m.add_round(y.data(), g.data(), n);
  m.add(y.data(), w.data(), n);
  keep(y);
  for (int rows : {1, 5, 16}) {
    const std::vector<float> mixes = Values(static_cast<size_t>(24 * rows), 3, 8), base = Values(24, 1, 9);
    const float scale[3] = {1.0f, 0.5f, 2.0f};
    std::vector<float> p(static_cast<size_t>(4 * rows)), q(p), c(static_cast<size_t>(16 * rows));
    m.split_mixes(mixes.data(), rows, scale, base.data(), 4, 20, 1e-6f, p.data(), q.data(), c.data());
    keep(p);
    keep(q);
    keep(c);
  }
  return out;
}

TEST(RowMath, EveryInstructionSetGivesTheSameBits) {
  for (int n : {16, 64, 96, 160, 512}) {
    std::vector<float> want;
    {
      ScopedIsa portable(Isa::kPortable);
      want = RunAll(n);
    }
    for (Isa isa : SupportedIsas()) {
      ScopedIsa forced(isa);
      const std::vector<float> got = RunAll(n);
      ASSERT_EQ(got.size(), want.size());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
          << IsaName(isa) << " n " << n;
    }
  }
}

TEST(RowMath, SigmoidAndSoftmaxAreAccurateOverTheWholeRange) {
  // swiglu with u = 1, weight 1: silu(g) = g / (1 + e^-g), seen through its bf16 rounding.
  const int n = 4096;
  std::vector<float> g(n), u(n, 1.0f), a(n);
  for (int i = 0; i < n; ++i) g[static_cast<size_t>(i)] = -100.0f + 110.0f * static_cast<float>(i) / n;
  ActiveRowMath().swiglu(g.data(), u.data(), 10.0f, 1.0f, n, a.data());
  for (size_t i = 0; i < g.size(); ++i) {
    const double want = double{g[i]} / (1.0 + std::exp(-double{g[i]}));
    EXPECT_NEAR(a[i], want, std::fabs(want) / 250 + 1e-35) << g[i];
  }
}

TEST(RowMath, CombIsDoublyStochastic) {
  const std::vector<float> mixes = Values(24 * 16, 1, 1), base = Values(24, 1, 2);
  const float scale[3] = {1, 1, 1};
  std::vector<float> pre(64), post(64), comb(256);
  ActiveRowMath().split_mixes(mixes.data(), 16, scale, base.data(), 4, 50, 1e-6f, pre.data(),
                              post.data(), comb.data());
  for (size_t r = 0; r < 16; ++r) {
    for (size_t j = 0; j < 4; ++j) {
      float column = 0, row = 0;
      for (size_t i = 0; i < 4; ++i) {
        column += comb[r * 16 + i * 4 + j];
        row += comb[r * 16 + j * 4 + i];
      }
      EXPECT_NEAR(column, 1.0f, 1e-4f);
      EXPECT_NEAR(row, 1.0f, 1e-3f);
    }
  }
}

}  // namespace
}  // namespace emberkv
