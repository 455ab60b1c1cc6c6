#include "model/moe.h"

#include <algorithm>
#include <cmath>

#include "formats/row_codec.h"
#include "linear/multiply.h"
#include "model/row_math.h"

namespace emberkv {
namespace {

float SqrtSoftplus(float logit) {
  const float softplus = logit > 20.0f ? logit : std::log1p(std::exp(logit));
  return std::sqrt(softplus);
}

struct Assignment {
  int row;
  float weight;
};

}  // namespace

Route RouteRow(const float* logits, const std::vector<float>& bias, const ModelConfig& config) {
  const int n = config.n_routed_experts;
  std::vector<float> scores(static_cast<size_t>(n));
  std::vector<int> order(static_cast<size_t>(n));
  for (int e = 0; e < n; ++e) {
    scores[static_cast<size_t>(e)] = SqrtSoftplus(logits[e]);
    order[static_cast<size_t>(e)] = e;
  }
  const auto biased = [&](int e) { return scores[static_cast<size_t>(e)] + bias[static_cast<size_t>(e)]; };
  std::partial_sort(order.begin(), order.begin() + config.num_experts_per_tok, order.end(),
                    [&](int a, int b) {
                      return biased(a) > biased(b) || (biased(a) == biased(b) && a < b);
                    });
  Route route;
  float sum = 0.0f;
  for (int i = 0; i < config.num_experts_per_tok; ++i) {
    const int e = order[static_cast<size_t>(i)];
    route.experts.push_back(e);
    route.weights.push_back(scores[static_cast<size_t>(e)]);  // the bias selects, it never weighs
    sum += route.weights.back();
  }
  const float scale = static_cast<float>(config.routed_scaling_factor);
  for (float& w : route.weights) w = w / (sum + 1e-20f) * scale;
  return route;
}

void RunExpert(const ExpertWeights& expert, const ModelConfig& config, const float* weights, int rows,
               Step* step) {
  Step::Scratch& s = step->scratch;
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  const size_t inter = static_cast<size_t>(expert.w1.rows());
  s.gate.resize(static_cast<size_t>(rows) * inter);
  s.up.resize(s.gate.size());
  s.hidden.resize(s.gate.size());
  s.expert_out.resize(static_cast<size_t>(rows) * hidden);
  Multiply(expert.w1, s.expert_in.data(), hidden, rows, s.gate.data(), inter, Rounding::kBf16,
           *step->pool);
  Multiply(expert.w3, s.expert_in.data(), hidden, rows, s.up.data(), inter, Rounding::kBf16,
           *step->pool);
  const RowMath& math = ActiveRowMath();
  for (int r = 0; r < rows; ++r) {
    const size_t at = static_cast<size_t>(r) * inter;
    // The routing weight goes in before w2, inside the activation that is then quantized.
    math.swiglu(s.gate.data() + at, s.up.data() + at, static_cast<float>(config.swiglu_limit),
                weights == nullptr ? 1.0f : weights[r], static_cast<int>(inter), s.hidden.data() + at);
  }
  RoundRows(RowFormat::kWindowKv, s.hidden.data(), inter, rows, static_cast<int>(inter));
  Multiply(expert.w2, s.hidden.data(), inter, rows, s.expert_out.data(), hidden, Rounding::kBf16,
           *step->pool);
}

void RunMoe(const MoeWeights& weights, const ModelConfig& config, Step* step) {
  Step::Scratch& s = step->scratch;
  const int rows = step->num_rows();
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  const size_t num_experts = static_cast<size_t>(config.n_routed_experts);
  s.router.resize(static_cast<size_t>(rows) * num_experts);
  Multiply(weights.gate, s.x.data(), hidden, rows, s.router.data(), num_experts, Rounding::kNone,
           *step->pool);
  std::vector<std::vector<Assignment>> assigned(num_experts);
  for (int r = 0; r < rows; ++r) {
    const Route route =
        RouteRow(s.router.data() + static_cast<size_t>(r) * num_experts, weights.bias, config);
    for (size_t i = 0; i < route.experts.size(); ++i) {
      assigned[static_cast<size_t>(route.experts[i])].push_back({r, route.weights[i]});
    }
  }
  s.xq = s.x;
  RoundRows(RowFormat::kWindowKv, s.xq.data(), hidden, rows, config.hidden_size);
  s.y.assign(static_cast<size_t>(rows) * hidden, 0.0f);
  const RowMath& math = ActiveRowMath();
  std::vector<float> route_weights;
  for (size_t e = 0; e < num_experts; ++e) {  // ascending: each row adds its experts in this order
    const std::vector<Assignment>& list = assigned[e];
    if (list.empty()) continue;
    s.expert_in.resize(list.size() * hidden);
    route_weights.clear();
    for (size_t i = 0; i < list.size(); ++i) {
      std::copy_n(s.xq.data() + static_cast<size_t>(list[i].row) * hidden, hidden,
                  s.expert_in.data() + i * hidden);
      route_weights.push_back(list[i].weight);
    }
    RunExpert(weights.experts[e], config, route_weights.data(), static_cast<int>(list.size()), step);
    for (size_t i = 0; i < list.size(); ++i) {
      math.add(s.y.data() + static_cast<size_t>(list[i].row) * hidden, s.expert_out.data() + i * hidden,
               config.hidden_size);
    }
  }
  std::swap(s.expert_in, s.xq);
  RunExpert(weights.shared, config, nullptr, rows, step);
  for (int r = 0; r < rows; ++r) {
    math.add_round(s.y.data() + static_cast<size_t>(r) * hidden,
                   s.expert_out.data() + static_cast<size_t>(r) * hidden, config.hidden_size);
  }
}

}  // namespace emberkv
