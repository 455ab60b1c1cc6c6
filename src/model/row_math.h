// Element-wise and per-row arithmetic of the model outside matrix products, one table per instruction
// set. Values are fp32; "bf" marks results rounded to bf16. Never contracted, so every instruction set
// gives the same bits. Pure functions over the caller's memory; n is a multiple of 16.
#pragma once

#include <cstdint>

namespace emberkv {

inline constexpr int kMaxStreams = 8;  // largest hc_mult

struct RowMath {
  // Sum of x[i]^2 in one fixed order.
  float (*sum_squares)(const float* x, int n);

  // y = bf(w * (x * rsqrt(mean(x^2) + eps)))  (numerics 3.1). In place is allowed.
  void (*rms_norm)(const float* x, const float* w, float eps, int n, float* y);

  // x[c] = bf(sum over i of pre[i] * h[i][c]), h [streams][n]  (numerics 4).
  void (*collapse)(const float* h, const float* pre, int streams, int n, float* x);

  // h[j][c] = bf(post[j] * y[c] + sum over i of comb[i][j] * h[i][c]), in place.
  void (*mix_streams)(float* h, const float* y, const float* post, const float* comb, int streams,
                      int n);

  // numerics 4.1 and 4.2 for up to 16 rows: from scaled projections m [rows][(2 + streams) * streams]
  // to pre, post [rows][streams] and comb [rows][streams][streams].
  void (*split_mixes)(const float* m, int rows, const float* scale, const float* base, int streams,
                      int sinkhorn_iters, float eps, float* pre, float* post, float* comb);

  // a = bf(weight * (silu(min(g, limit)) * clamp(u, -limit, limit)))  (numerics 11).
  void (*swiglu)(const float* g, const float* u, float limit, float weight, int n, float* a);

  // u = bf(k0 * a0 + k1 * a1), a = softmax over (g0, g1) per channel  (numerics 7).
  void (*pool_pair)(const float* k0, const float* g0, const float* k1, const float* g1, int n,
                    float* u);

  // sum over c of h[c] * qk[c] * k[c] in one fixed order  (numerics 13.4).
  float (*triple_dot)(const float* h, const float* qk, const float* k, int n);

  // h = bf(h + gate * v)
  void (*add_scaled)(float* h, float gate, const float* v, int n);

  // x = bf(x + y)
  void (*add_round)(float* x, const float* y, int n);

  // x = x + y, fp32
  void (*add)(float* x, const float* y, int n);
};

const RowMath& ActiveRowMath();

#define EMBERKV_DECLARE_ROW_MATH(isa) \
  namespace isa {                     \
  extern const RowMath kRowMath;      \
  }
EMBERKV_DECLARE_ROW_MATH(portable)
EMBERKV_DECLARE_ROW_MATH(avx2)
EMBERKV_DECLARE_ROW_MATH(avx512)
#undef EMBERKV_DECLARE_ROW_MATH

}  // namespace emberkv
