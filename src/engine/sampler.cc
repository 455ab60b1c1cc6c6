#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace emberkv {

Result<Sampler> Sampler::Make(const SamplerOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    return InvalidArgument(fmt::format(
        "temperature is {}; allowed: 0 (greedy) or any positive number", options.temperature));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return InvalidArgument(
        fmt::format("top_p is {}; allowed: above 0, at most 1", options.top_p));
  }
  return Sampler(options);
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY) {
      return Internal(fmt::format("the logit of token {} is {}", i, logits[i]));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits.empty() || std::isinf(logits[best])) {
    return Internal(fmt::format("none of {} logits is finite", logits.size()));
  }
  if (options_.temperature == 0) return static_cast<int32_t>(best);
  return Draw(logits, logits[best]);
}

int32_t Sampler::Draw(std::span<const float> logits, float largest) {
  candidates_.clear();
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((double{logits[i]} - double{largest}) / options_.temperature);
    if (weight == 0) continue;
    candidates_.push_back({weight, static_cast<int32_t>(i)});
    total += weight;
  }
  if (options_.top_p < 1) total = KeepTopP();
  // 53 bits in [0, 1). The standard's distributions may differ between libraries.
  const double drawn = static_cast<double>(bits_() >> 11) * 0x1p-53 * total;
  double sum = 0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (drawn < sum) return candidate.token;
  }
  return candidates_.back().token;
}

// Drops all but the most probable candidates that together reach top_p; equal ones by lowest id.
// Returns the weight of those that stay.
double Sampler::KeepTopP() {
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  });
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double kept = 0;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < options_.top_p * total)) {
    kept += candidates_[count++].weight;
  }
  candidates_.resize(count);
  return kept;
}

}  // namespace emberkv
