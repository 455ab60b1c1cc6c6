#include "engine/sampled_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace emberkv {

SampledToken DescribeToken(std::span<const float> logits, int32_t token, std::optional<int> top) {
  SampledToken described{token, std::nullopt, {}};
  if (!top) return described;
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  const auto logprob_of = [&](int32_t id) { return logits[static_cast<size_t>(id)] - log_sum; };
  described.logprob = logprob_of(token);

  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto best = ids.begin() + std::min<int64_t>(*top, static_cast<int64_t>(ids.size()));
  std::ranges::partial_sort(ids, best, [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (auto id = ids.begin(); id != best; ++id) described.alternatives.push_back({*id, logprob_of(*id)});
  return described;
}

}  // namespace emberkv
