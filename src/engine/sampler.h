// Chooses the next token from logits: greedy, or by temperature and top-p.
//
// The draws depend on the seed alone: the same logits and seed give the same tokens. One sampler per
// answer, used by one thread at a time.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/status.h"

namespace emberkv {

struct SamplerOptions {
  double temperature = 0;  // 0 is greedy
  double top_p = 1;        // the most probable tokens that together reach this share; 1 is all
  uint64_t seed = 0;
};

class Sampler {
 public:
  // Refuses values outside of: temperature finite and at least 0; top_p above 0, at most 1.
  static Result<Sampler> Make(const SamplerOptions& options);

  // Greedy takes the largest logit, among equals the lowest id. Logits of -inf are never chosen.
  // kInternal when a logit is NaN or +inf or none is finite: a broken model must not look random.
  Result<int32_t> Sample(std::span<const float> logits);

 private:
  struct Candidate {
    double weight = 0;  // probability, but for a common factor
    int32_t token = 0;
  };

  explicit Sampler(const SamplerOptions& options) : options_(options), bits_(options.seed) {}

  int32_t Draw(std::span<const float> logits, float largest);
  double KeepTopP();

  SamplerOptions options_;
  std::mt19937_64 bits_;
  std::vector<Candidate> candidates_;  // scratch of Draw
};

}  // namespace emberkv
