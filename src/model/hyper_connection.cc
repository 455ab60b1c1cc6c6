#include "model/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "linear/multiply.h"
#include "model/row_math.h"

namespace emberkv {
namespace {

constexpr int kRowsPerTask = 16;

}  // namespace

void ComputeMixes(const HyperConnectionWeights& weights, const ModelConfig& config, Step* step) {
  const int rows = step->num_rows();
  const int n = config.hc_mult;
  const int width = (2 + n) * n;
  const size_t stream_size = static_cast<size_t>(n) * static_cast<size_t>(config.hidden_size);
  Step::Scratch& s = step->scratch;
  s.mixes.resize(static_cast<size_t>(rows * width));
  s.next_pre.resize(static_cast<size_t>(rows * n));
  s.post.resize(static_cast<size_t>(rows * n));
  s.comb.resize(static_cast<size_t>(rows * n * n));
  Multiply(weights.fn, step->stream.data(), stream_size, rows, s.mixes.data(),
           static_cast<size_t>(width), Rounding::kNone, *step->pool);
  const RowMath& math = ActiveRowMath();
  const float eps = static_cast<float>(config.rms_norm_eps);
  step->pool->ParallelFor(rows, kRowsPerTask, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float sum =
          math.sum_squares(step->stream.data() + static_cast<size_t>(r) * stream_size,
                           static_cast<int>(stream_size));
      const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(stream_size) + eps);
      for (int k = 0; k < width; ++k) s.mixes[static_cast<size_t>(r * width + k)] *= inverse;
    }
    for (int64_t r = begin; r < end; r += kRowsPerTask) {
      math.split_mixes(s.mixes.data() + r * width,
                       static_cast<int>(std::min<int64_t>(kRowsPerTask, end - r)),
                       weights.scale.data(), weights.base.data(), n, config.hc_sinkhorn_iters,
                       static_cast<float>(config.hc_eps), s.next_pre.data() + r * n,
                       s.post.data() + r * n, s.comb.data() + r * n * n);
    }
  });
}

void SublayerInput(const std::vector<float>& norm, const ModelConfig& config, Step* step) {
  const int rows = step->num_rows();
  const int n = config.hc_mult;
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  step->scratch.x.resize(static_cast<size_t>(rows) * hidden);
  const RowMath& math = ActiveRowMath();
  step->pool->ParallelFor(rows, kRowsPerTask, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* x = step->scratch.x.data() + static_cast<size_t>(r) * hidden;
      math.collapse(step->stream.data() + static_cast<size_t>(r * n) * hidden,
                    step->pre.data() + r * n, n, config.hidden_size, x);
      math.rms_norm(x, norm.data(), static_cast<float>(config.rms_norm_eps), config.hidden_size, x);
    }
  });
}

void FoldOutput(const ModelConfig& config, Step* step) {
  const int n = config.hc_mult;
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  Step::Scratch& s = step->scratch;
  const RowMath& math = ActiveRowMath();
  step->pool->ParallelFor(step->num_rows(), kRowsPerTask, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      math.mix_streams(step->stream.data() + static_cast<size_t>(r * n) * hidden,
                       s.y.data() + static_cast<size_t>(r) * hidden, s.post.data() + r * n,
                       s.comb.data() + r * n * n, n, config.hidden_size);
    }
  });
  std::swap(step->pre, s.next_pre);
}

}  // namespace emberkv
