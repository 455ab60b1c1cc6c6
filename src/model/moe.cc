#include "model/moe.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "formats/row_codec.h"
#include "linear/multiply.h"
#include "model/row_math.h"

namespace emberkv {
namespace {

float SqrtSoftplus(float logit) {
  const float softplus = logit > 20.0f ? logit : std::log1p(std::exp(logit));
  return std::sqrt(softplus);
}

// Ahead of the experts that are packed: bounds what the system's cache must hold of a step with many.
constexpr size_t kReadAheadExperts = 8;

// The rows that an expert runs for.
struct Assignments {
  int expert = 0;
  std::vector<int> rows;
  std::vector<float> weights;
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

namespace {

// Runs the router over scratch x and prepares scratch xq and y. Gives the experts with rows, ascending:
// each row adds its experts in this order.
std::vector<Assignments> BeginMoe(const MoeWeights& weights, const ModelConfig& config, Step* step) {
  Step::Scratch& s = step->scratch;
  const int rows = step->num_rows();
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  const size_t num_experts = static_cast<size_t>(config.n_routed_experts);
  s.router.resize(static_cast<size_t>(rows) * num_experts);
  Multiply(weights.gate, s.x.data(), hidden, rows, s.router.data(), num_experts, Rounding::kNone,
           *step->pool);
  std::vector<Assignments> assigned(num_experts);
  for (size_t e = 0; e < num_experts; ++e) assigned[e].expert = static_cast<int>(e);
  for (int r = 0; r < rows; ++r) {
    const Route route =
        RouteRow(s.router.data() + static_cast<size_t>(r) * num_experts, weights.bias, config);
    for (size_t i = 0; i < route.experts.size(); ++i) {
      Assignments& list = assigned[static_cast<size_t>(route.experts[i])];
      list.rows.push_back(r);
      list.weights.push_back(route.weights[i]);
    }
  }
  std::erase_if(assigned, [](const Assignments& list) { return list.rows.empty(); });
  s.xq = s.x;
  RoundRows(RowFormat::kWindowKv, s.xq.data(), hidden, rows, config.hidden_size);
  s.y.assign(static_cast<size_t>(rows) * hidden, 0.0f);
  return assigned;
}

// Adds an expert's output for its rows of scratch xq to scratch y.
void AddExpert(const ExpertWeights& expert, const Assignments& list, const ModelConfig& config, Step* step) {
  Step::Scratch& s = step->scratch;
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  s.expert_in.resize(list.rows.size() * hidden);
  for (size_t i = 0; i < list.rows.size(); ++i) {
    std::copy_n(s.xq.data() + static_cast<size_t>(list.rows[i]) * hidden, hidden,
                s.expert_in.data() + i * hidden);
  }
  RunExpert(expert, config, list.weights.data(), static_cast<int>(list.rows.size()), step);
  const RowMath& math = ActiveRowMath();
  for (size_t i = 0; i < list.rows.size(); ++i) {
    math.add(s.y.data() + static_cast<size_t>(list.rows[i]) * hidden, s.expert_out.data() + i * hidden,
             config.hidden_size);
  }
}

// Adds the shared expert.
void FinishMoe(const MoeWeights& weights, const ModelConfig& config, Step* step) {
  Step::Scratch& s = step->scratch;
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  std::swap(s.expert_in, s.xq);
  RunExpert(weights.shared, config, nullptr, step->num_rows(), step);
  const RowMath& math = ActiveRowMath();
  for (size_t r = 0; r < step->rows.size(); ++r) {
    math.add_round(s.y.data() + r * hidden, s.expert_out.data() + r * hidden, config.hidden_size);
  }
}

}  // namespace

void RunMoe(const MoeWeights& weights, const ModelConfig& config, Step* step) {
  for (const Assignments& list : BeginMoe(weights, config, step)) {
    AddExpert(weights.experts[static_cast<size_t>(list.expert)], list, config, step);
  }
  FinishMoe(weights, config, step);
}

Status RunStreamedMoe(const MoeWeights& weights, StreamedExperts* experts, int layer,
                      const ModelConfig& config, Step* step) {
  const std::vector<Assignments> assigned = BeginMoe(weights, config, step);
  std::vector<int> chosen;
  for (const Assignments& list : assigned) chosen.push_back(list.expert);
  const std::span<const int> all(chosen);
  size_t asked = 0;
  for (size_t begin = 0; begin < all.size(); begin += StreamedExperts::kTakenAtOnce) {
    const size_t end = std::min(all.size(), begin + StreamedExperts::kTakenAtOnce);
    const size_t ask_end = std::min(all.size(), end + kReadAheadExperts);
    experts->ReadAhead(layer, all.subspan(asked, ask_end - asked));
    asked = ask_end;
    EMBERKV_ASSIGN_OR_RETURN(const std::vector<StreamedExperts::Expert> taken,
                             experts->Take(layer, all.subspan(begin, end - begin), step->pool));
    for (size_t i = begin; i < end; ++i) AddExpert(*taken[i - begin], assigned[i], config, step);
  }
  FinishMoe(weights, config, step);
  return Status::Ok();
}

}  // namespace emberkv
