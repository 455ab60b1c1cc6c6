#include "attention/tile_kernels.h"

#include "base/simd.h"

namespace emberkv::EMBERKV_ISA {
namespace {

constexpr int kVectors = kTileRows / kLanes;

void Step(float* s, const float* penalty, float scale, int heads, int dim, float* m, float* l,
          float* o) {
  for (int h = 0; h < heads; ++h) {
    float* row = s + h * kTileRows;
    F32x16 x[kVectors];
    F32x16 top = Splat(m[h]);
    for (int j = 0; j < kVectors; ++j) {
      x[j] = Load(row + kLanes * j) * Splat(scale) + Load(penalty + kLanes * j);
      top = Max(top, x[j]);
    }
    const float new_max = ReduceMax(top);
    const float rescale = ReduceMax(Exp(Splat(m[h] - new_max)));
    F32x16 sum = {};
    for (int j = 0; j < kVectors; ++j) {
      const F32x16 p = Exp(x[j] - Splat(new_max));
      sum += p;
      Store(RoundBf16(p), row + kLanes * j);
    }
    m[h] = new_max;
    l[h] = l[h] * rescale + ReduceSum(sum);
    float* out = o + static_cast<size_t>(h) * dim;
    for (int c = 0; c < dim; c += kLanes) Store(Load(out + c) * Splat(rescale), out + c);
  }
}

void Finish(const float* o, const float* m, const float* l, const float* sink, int heads, int dim,
            float* out) {
  for (int h = 0; h < heads; ++h) {
    const float denominator = l[h] + ReduceMax(Exp(Splat(sink[h] - m[h])));
    const float* in = o + static_cast<size_t>(h) * dim;
    float* to = out + static_cast<size_t>(h) * dim;
    for (int c = 0; c < dim; c += kLanes) {
      Store(RoundBf16(Load(in + c) / Splat(denominator)), to + c);
    }
  }
}

}  // namespace

const SoftmaxKernels kSoftmaxKernels = {Step, Finish};

}  // namespace emberkv::EMBERKV_ISA
