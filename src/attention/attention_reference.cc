#include "attention/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/sparse_attention_kernels.h"
#include "formats/bf16.h"

namespace emberkv::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What Exp of base/simd.h gives for one value.
float Exp(float x) {
  if (x < -87.33f) return 0.0f;
  x = std::min(x, 88.37f);
  const float n = std::nearbyint(x * 1.44269504088896341f);
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    p = p * r + c;
  }
  return std::ldexp(p * (r * r) + r + 1.0f, static_cast<int>(n));
}

float Weight(float x) { return x < kLeastExponent ? 0.0f : Exp(x); }

float Operand(float x) { return std::fabs(x) < kLeastOperand ? 0.0f : x; }

template <class Value>
float Sum(size_t n, Value value) {
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += value(i);
  return sum;
}

// One head: its running maximum, sum and output.
struct Head {
  float m = -1e30f, l = 0;
  std::vector<float> o;

  void AddTile(const float* q, const float* rows, std::span<const int32_t> ids, int dim) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
    const auto row = [&](size_t i) { return rows + static_cast<int64_t>(ids[i]) * dim; };
    std::vector<float> s(ids.size()), p(ids.size(), 0.0f), parts(16, 0.0f);
    float top = m;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0) continue;
      s[i] = scale * Sum(static_cast<size_t>(dim), [&](size_t c) { return Operand(q[c]) * row(i)[c]; });
      top = std::max(top, s[i]);
    }
    const float rescale = Weight(m - top);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0) continue;
      const float w = Weight(s[i] - top);
      parts[i % 16] += w;
      p[i] = RoundToBf16(w);
    }
    for (size_t width = 8; width >= 1; width /= 2) {
      for (size_t i = 0; i < width; ++i) parts[i] += parts[i + width];
    }
    l = l * rescale + parts[0];
    m = top;
    for (int c = 0; c < dim; ++c) {
      const float weighted = Sum(ids.size(), [&](size_t i) { return ids[i] < 0 ? 0.0f : p[i] * row(i)[c]; });
      o[static_cast<size_t>(c)] = o[static_cast<size_t>(c)] * rescale + weighted;
    }
  }
};

}  // namespace

float IndexScore(const float* q, const float* k, const float* w, int heads, int dim) {
  float score = 0.0f;
  for (int h = 0; h < heads; ++h) {
    float dot = 0.0f;
    for (int g = 0; g < dim; g += 32) {
      float group = 0.0f;
      for (int c = g; c < g + 32; ++c) group += q[h * dim + c] * k[c];
      dot += group;
    }
    const float rounded = RoundToBf16(dot);
    score += RoundToBf16((rounded > 0.0f ? rounded : 0.0f) * w[h]);
  }
  return RoundToBf16(score);
}

std::vector<int32_t> TopK(std::span<const float> scores, int k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  std::erase_if(order, [&](int32_t i) { return scores[static_cast<size_t>(i)] == -kInfinity; });
  if (order.size() > static_cast<size_t>(k)) order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int32_t> CandidateBlocks(std::span<const float> scores, int topk_blocks,
                                     int block_size) {
  std::vector<float> blocks;
  for (size_t j = 0; j < scores.size(); ++j) {
    if (j % static_cast<size_t>(block_size) == 0) blocks.push_back(-kInfinity);
    blocks.back() = std::max(blocks.back(), scores[j]);
  }
  if (!blocks.empty()) blocks.back() = kInfinity;
  return TopK(blocks, topk_blocks);
}

std::vector<float> TiledAttention(const float* q, const float* rows, const float* sink,
                                  std::span<const int32_t> ids, int heads, int dim) {
  std::vector<float> out;
  for (int h = 0; h < heads; ++h) {
    Head head;
    head.o.resize(static_cast<size_t>(dim));
    for (size_t first = 0; first < ids.size(); first += kAttentionTileRows) {
      const auto tile = ids.subspan(first, std::min<size_t>(kAttentionTileRows, ids.size() - first));
      head.AddTile(q + h * dim, rows, tile, dim);
    }
    const float denominator = head.l + Exp(sink[h] - head.m);
    for (float v : head.o) out.push_back(RoundToBf16(v / denominator));
  }
  return out;
}

std::vector<float> Attention(const float* q, const float* rows, const float* sink,
                             std::span<const int32_t> ids, int heads, int dim) {
  std::vector<float> out(static_cast<size_t>(heads) * static_cast<size_t>(dim), 0.0f);
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  for (int h = 0; h < heads; ++h) {
    std::vector<double> s(ids.size(), -kInfinity);
    double top = sink[h];
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0) continue;
      double dot = 0;
      for (int c = 0; c < dim; ++c) dot += double{q[h * dim + c]} * rows[ids[i] * dim + c];
      s[i] = dot * scale;
      top = std::max(top, s[i]);
    }
    double total = std::exp(sink[h] - top);
    for (double& x : s) total += x = std::exp(x - top);
    for (int c = 0; c < dim; ++c) {
      double sum = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] >= 0) sum += s[i] * rows[ids[i] * dim + c];
      }
      out[static_cast<size_t>(h * dim + c)] = static_cast<float>(sum / total);
    }
  }
  return out;
}

}  // namespace emberkv::reference
