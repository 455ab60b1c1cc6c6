#include "model/row_math.h"

#include "base/simd.h"

namespace emberkv::EMBERKV_ISA {
namespace {

// Adds term(c) for c = 0, 16, 32, ... in four interleaved sums, then reduces them in one tree.
template <typename Term>
EMBERKV_INLINE float SumRow(int n, Term term) {
  F32x16 sum[4] = {};
  int c = 0;
  for (; c + 4 * kLanes <= n; c += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[j] += term(c + j * kLanes);
  }
  for (int j = 0; c < n; c += kLanes, ++j) sum[j] += term(c);
  return ReduceSum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

float SumSquares(const float* x, int n) {
  return SumRow(n, [x](int c) __attribute__((always_inline)) {
    const F32x16 v = Load(x + c);
    return v * v;
  });
}

void RmsNorm(const float* x, const float* w, float eps, int n, float* y) {
  const float mean = SumSquares(x, n) / static_cast<float>(n);
  const float r = 1.0f / __builtin_sqrtf(mean + eps);
  for (int c = 0; c < n; c += kLanes) {
    Store(RoundBf16(Load(w + c) * (Load(x + c) * Splat(r))), y + c);
  }
}

void Collapse(const float* h, const float* pre, int streams, int n, float* x) {
  for (int c = 0; c < n; c += kLanes) {
    F32x16 sum = Splat(pre[0]) * Load(h + c);
    for (int i = 1; i < streams; ++i) {
      sum += Splat(pre[i]) * Load(h + static_cast<long>(i) * n + c);
    }
    Store(RoundBf16(sum), x + c);
  }
}

void MixStreams(float* h, const float* y, const float* post, const float* comb, int streams, int n) {
  for (int c = 0; c < n; c += kLanes) {
    F32x16 in[kMaxStreams];
    for (int i = 0; i < streams; ++i) in[i] = Load(h + static_cast<long>(i) * n + c);
    const F32x16 add = Load(y + c);
    for (int j = 0; j < streams; ++j) {
      F32x16 sum = Splat(comb[j]) * in[0];
      for (int i = 1; i < streams; ++i) sum += Splat(comb[i * streams + j]) * in[i];
      Store(RoundBf16(Splat(post[j]) * add + sum), h + static_cast<long>(j) * n + c);
    }
  }
}

EMBERKV_INLINE F32x16 Sigmoid(F32x16 x) { return Splat(1.0f) / (Splat(1.0f) + Exp(-x)); }

// Row and column steps of numerics 4.2; lanes are rows of the batch.
EMBERKV_INLINE void Sinkhorn(F32x16 (&c)[kMaxStreams][kMaxStreams], int n, int iters, F32x16 eps) {
  for (int i = 0; i < n; ++i) {
    F32x16 top = c[i][0];
    for (int j = 1; j < n; ++j) top = Max(top, c[i][j]);
    F32x16 sum = {};
    for (int j = 0; j < n; ++j) sum += c[i][j] = Exp(c[i][j] - top);
    for (int j = 0; j < n; ++j) c[i][j] = c[i][j] / sum + eps;
  }
  for (int iter = 0; iter < iters; ++iter) {
    if (iter > 0) {
      for (int i = 0; i < n; ++i) {
        F32x16 sum = c[i][0];
        for (int j = 1; j < n; ++j) sum += c[i][j];
        for (int j = 0; j < n; ++j) c[i][j] /= sum + eps;
      }
    }
    for (int j = 0; j < n; ++j) {
      F32x16 sum = c[0][j];
      for (int i = 1; i < n; ++i) sum += c[i][j];
      for (int i = 0; i < n; ++i) c[i][j] /= sum + eps;
    }
  }
}

void SplitMixes(const float* m, int rows, const float* scale, const float* base, int streams,
                int sinkhorn_iters, float eps, float* pre, float* post, float* comb) {
  const int width = (2 + streams) * streams;
  // Lanes beyond `rows` repeat the last row.
  const auto column = [&](int k, int part) __attribute__((always_inline)) {
    float lanes[kLanes];
    for (int r = 0; r < kLanes; ++r) lanes[r] = m[(r < rows ? r : rows - 1) * width + k];
    return Load(lanes) * Splat(scale[part]) + Splat(base[k]);
  };
  const auto scatter = [&](F32x16 v, float* out, int stride) __attribute__((always_inline)) {
    float lanes[kLanes];
    Store(v, lanes);
    for (int r = 0; r < rows; ++r) out[r * stride] = lanes[r];
  };
  const F32x16 small = Splat(eps);
  for (int i = 0; i < streams; ++i) scatter(Sigmoid(column(i, 0)) + small, pre + i, streams);
  for (int i = 0; i < streams; ++i) {
    scatter(Splat(2.0f) * Sigmoid(column(streams + i, 1)), post + i, streams);
  }
  F32x16 c[kMaxStreams][kMaxStreams];
  for (int i = 0; i < streams; ++i) {
    for (int j = 0; j < streams; ++j) c[i][j] = column((2 + i) * streams + j, 2);
  }
  Sinkhorn(c, streams, sinkhorn_iters, small);
  for (int i = 0; i < streams; ++i) {
    for (int j = 0; j < streams; ++j) scatter(c[i][j], comb + i * streams + j, streams * streams);
  }
}

void Swiglu(const float* g, const float* u, float limit, float weight, int n, float* a) {
  const F32x16 hi = Splat(limit);
  for (int c = 0; c < n; c += kLanes) {
    const F32x16 gate = Min(Load(g + c), hi);
    const F32x16 up = Min(Max(Load(u + c), -hi), hi);
    const F32x16 silu = gate / (Splat(1.0f) + Exp(-gate));
    Store(RoundBf16(Splat(weight) * (silu * up)), a + c);
  }
}

void PoolPair(const float* k0, const float* g0, const float* k1, const float* g1, int n, float* u) {
  for (int c = 0; c < n; c += kLanes) {
    const F32x16 a = Load(g0 + c);
    const F32x16 b = Load(g1 + c);
    const F32x16 top = Max(a, b);
    const F32x16 ea = Exp(a - top);
    const F32x16 eb = Exp(b - top);
    const F32x16 sum = ea + eb;
    Store(RoundBf16(Load(k0 + c) * (ea / sum) + Load(k1 + c) * (eb / sum)), u + c);
  }
}

float TripleDot(const float* h, const float* qk, const float* k, int n) {
  return SumRow(n, [=](int c) __attribute__((always_inline)) {
    return Load(h + c) * Load(qk + c) * Load(k + c);
  });
}

void AddScaled(float* h, float gate, const float* v, int n) {
  for (int c = 0; c < n; c += kLanes) {
    Store(RoundBf16(Load(h + c) + Splat(gate) * Load(v + c)), h + c);
  }
}

void AddRound(float* x, const float* y, int n) {
  for (int c = 0; c < n; c += kLanes) Store(RoundBf16(Load(x + c) + Load(y + c)), x + c);
}

void Add(float* x, const float* y, int n) {
  for (int c = 0; c < n; c += kLanes) Store(Load(x + c) + Load(y + c), x + c);
}

}  // namespace

const RowMath kRowMath = {SumSquares, RmsNorm,  Collapse,  MixStreams, SplitMixes, Swiglu,
                          PoolPair,   TripleDot, AddScaled, AddRound,   Add};

}  // namespace emberkv::EMBERKV_ISA
