// The mixture of experts of one layer (numerics 11). Internal to model/.
#pragma once

#include <vector>

#include "base/status.h"
#include "layout/model_config.h"
#include "model/model_weights.h"
#include "model/step.h"

namespace emberkv {

// Experts and weights of one row. Ids in descending order of biased score; equal: lowest id first.
struct Route {
  std::vector<int> experts;
  std::vector<float> weights;
};

// logits [n_routed_experts] of one row.
Route RouteRow(const float* logits, const std::vector<float>& bias, const ModelConfig& config);

// scratch expert_out = w2(bf(weight * swiglu(w1 x, w3 x))) for `rows` quantized inputs in scratch
// expert_in; weights [rows], or nullptr for 1 (the shared expert).
void RunExpert(const ExpertWeights& expert, const ModelConfig& config, const float* weights, int rows,
               Step* step);

// scratch y = routed + shared experts of scratch x, for every active row. All experts are packed.
void RunMoe(const MoeWeights& weights, const ModelConfig& config, Step* step);

// The same bits with routed experts that are read as they are chosen. Fails when they cannot be read.
Status RunStreamedMoe(const MoeWeights& weights, StreamedExperts* experts, int layer,
                      const ModelConfig& config, Step* step);

}  // namespace emberkv
