// A sampled token with what the model thought of it and of its alternatives.
//
// A pure function; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace emberkv {

struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0;  // natural logarithm of the model's probability, before temperature and top-p
};

struct SampledToken {
  int32_t token = 0;
  std::optional<double> logprob;           // when log-probabilities were asked for
  std::vector<TokenLogprob> alternatives;  // the likeliest tokens, best first; equal ones by id
};

// `top` none: the token alone. Otherwise its log-probability and those of the `top` likeliest tokens.
SampledToken DescribeToken(std::span<const float> logits, int32_t token, std::optional<int> top);

}  // namespace emberkv
