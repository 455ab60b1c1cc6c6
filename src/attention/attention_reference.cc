#include "attention/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "formats/bf16.h"

namespace emberkv::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

float IndexScore(const float* q, const float* k, const float* w, int heads, int dim) {
  float score = 0.0f;
  for (int h = 0; h < heads; ++h) {
    float dot = 0.0f;
    for (int c = 0; c < dim; ++c) dot += q[h * dim + c] * k[c];
    const float rectified = std::max(RoundToBf16(dot), 0.0f);
    score += RoundToBf16(rectified * w[h]);
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
