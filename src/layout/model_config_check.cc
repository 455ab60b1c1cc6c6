// The rules between the fields of a ModelConfig that concern sizes. The rules between layers
// (sources, ratios, candidates) belong to MakeCacheLayout.
#include <algorithm>
#include <limits>

#include "fmt/format.h"
#include "layout/model_config.h"

namespace emberkv {
namespace {

// The scale group of FP8 and FP4 weights and of quantised activations (numerics 2 and 3): whatever
// is the inner dimension of a quantised product must be whole groups.
constexpr int kScaleGroup = 32;

struct Bound {
  const char* name;
  int64_t value;
  int64_t min;
  int64_t max;
  int multiple_of = 1;
};

Status CheckBound(const Bound& b) {
  if (b.value >= b.min && b.value <= b.max && b.value % b.multiple_of == 0) return Status::Ok();
  std::string rule = fmt::format("{} to {}", b.min, b.max);
  if (b.multiple_of != 1) {
    rule = fmt::format("a multiple of {} from {} (scale groups of the row and weight formats)",
                       b.multiple_of, rule);
  }
  return InvalidArgument(fmt::format("text_config.{} is {}; allowed: {}", b.name, b.value, rule));
}

// Upper bounds are far above any known model and low enough that products of three of them fit 64
// bits.
Status CheckBounds(const ModelConfig& c) {
  constexpr int kGroup = kScaleGroup;
  const Bound bounds[] = {
      {"vocab_size", c.vocab_size, 2, 1 << 24},
      {"hidden_size", c.hidden_size, kGroup, 1 << 17, kGroup},
      {"moe_intermediate_size", c.moe_intermediate_size, kGroup, 1 << 17, kGroup},
      {"num_hidden_layers", c.num_hidden_layers, 1, 1 << 10},
      {"num_attention_heads", c.num_attention_heads, 1, 1 << 12},
      {"head_dim", c.head_dim, kGroup, 1 << 14, kGroup},
      {"q_lora_rank", c.q_lora_rank, kGroup, 1 << 17, kGroup},
      {"o_lora_rank", c.o_lora_rank, kGroup, 1 << 17, kGroup},
      {"o_groups", c.o_groups, 1, c.num_attention_heads},
      {"max_position_embeddings", c.max_position_embeddings, 1, int64_t{1} << 32},
      {"n_routed_experts", c.n_routed_experts, 1, 1 << 16},
      // The checkpoint names one shared expert (numerics 2).
      {"n_shared_experts", c.n_shared_experts, 1, 1},
      {"sliding_window", c.sliding_window, 1, 1 << 20},
      {"index_n_heads", c.index_n_heads, 1, 1 << 12},
      {"index_head_dim", c.index_head_dim, kGroup, 1 << 14, kGroup},
      {"index_topk", c.index_topk, 1, 1 << 20},
      {"candidate_topk_blocks", c.candidate_topk_blocks, 1, 1 << 24},
      {"candidate_block_size", c.candidate_block_size, 1, 1 << 16},
      {"hc_mult", c.hc_mult, 1, 16},
      {"hc_sinkhorn_iters", c.hc_sinkhorn_iters, 1, 1000},
      {"num_nextn_predict_layers", c.num_nextn_predict_layers, 0, 1 << 10},
      {"rope_scaling.original_max_position_embeddings",
       c.rope_scaling.original_max_position_embeddings, 1, int64_t{1} << 32},
  };
  for (const Bound& bound : bounds) EMBERKV_RETURN_IF_ERROR(CheckBound(bound));
  return Status::Ok();
}

Status CheckReals(const ModelConfig& c) {
  struct Real {
    const char* name;
    double value;
    double min;
    bool min_allowed;
  };
  const Real reals[] = {
      {"rms_norm_eps", c.rms_norm_eps, 0, true},
      {"hc_eps", c.hc_eps, 0, true},
      {"swiglu_limit", c.swiglu_limit, 0, false},
      {"routed_scaling_factor", c.routed_scaling_factor, 0, false},
      {"rope_theta", c.rope_theta, 1, false},
      {"compress_rope_theta", c.compress_rope_theta, 1, false},
      {"rope_scaling.factor", c.rope_scaling.factor, 1, true},
      {"rope_scaling.beta_slow", c.rope_scaling.beta_slow, 0, false},
      // fast turns before slow: otherwise the ramp between them runs backwards
      {"rope_scaling.beta_fast", c.rope_scaling.beta_fast, c.rope_scaling.beta_slow, true},
  };
  constexpr double kMax = std::numeric_limits<float>::max();  // all are used in fp32
  for (const Real& real : reals) {
    const bool above = real.min_allowed ? real.value >= real.min : real.value > real.min;
    if (above && real.value <= kMax) continue;
    return InvalidArgument(fmt::format("text_config.{} is {}; allowed: {} {}, within fp32",
                                       real.name, real.value,
                                       real.min_allowed ? "at least" : "above", real.min));
  }
  return Status::Ok();
}

Status CheckRelations(const ModelConfig& c) {
  const int rope_max = std::min(c.head_dim, c.index_head_dim);
  if (c.qk_rope_head_dim < 2 || c.qk_rope_head_dim % 2 != 0 || c.qk_rope_head_dim > rope_max) {
    return InvalidArgument(
        fmt::format("text_config.qk_rope_head_dim is {}; allowed: an even number from 2 to {} (the "
                    "smaller of head_dim and index_head_dim)",
                    c.qk_rope_head_dim, rope_max));
  }
  if (c.num_attention_heads % c.o_groups != 0) {
    return InvalidArgument(
        fmt::format("text_config.o_groups is {}; allowed: a divisor of num_attention_heads, {}",
                    c.o_groups, c.num_attention_heads));
  }
  if (c.num_experts_per_tok < 1 || c.num_experts_per_tok > c.n_routed_experts) {
    return InvalidArgument(
        fmt::format("text_config.num_experts_per_tok is {}; allowed: 1 to n_routed_experts, {}",
                    c.num_experts_per_tok, c.n_routed_experts));
  }
  if (!c.norm_topk_prob) {
    return InvalidArgument("text_config.norm_topk_prob is false; allowed: true");
  }
  struct Token {
    const char* name;
    int id;
  };
  const Token tokens[] = {{"bos_token_id", c.bos_token_id},
                          {"eos_token_id", c.eos_token_id},
                          {"pad_token_id", c.pad_token_id}};
  for (const Token& token : tokens) {
    if (token.id >= 0 && token.id < c.vocab_size) continue;
    return InvalidArgument(fmt::format("{} is {}; allowed: 0 to {}, below text_config.vocab_size",
                                       token.name, token.id, c.vocab_size - 1));
  }
  return Status::Ok();
}

Status CheckEngram(const ModelConfig& c) {
  if (c.engram_layer_ids.empty()) return Status::Ok();
  if (c.engram_num_embeddings.size() != c.engram_layer_ids.size()) {
    return InvalidArgument(fmt::format(
        "text_config.engram_num_embeddings has {} entries; allowed: one for each of the {} "
        "engram_layer_ids",
        c.engram_num_embeddings.size(), c.engram_layer_ids.size()));
  }
  const Bound bounds[] = {
      {"engram_max_ngram_size", c.engram_max_ngram_size, 2, 16},
      {"engram_vocab_size", c.engram_vocab_size, 1, int64_t{1} << 40},
      {"engram_n_heads", c.engram_n_heads, 1, 1 << 8},
      {"engram_head_dim", c.engram_head_dim, kScaleGroup, 1 << 14, kScaleGroup},
      {"engram_pad_token_id", c.engram_pad_token_id, 0, c.vocab_size - 1},
      {"engram_compressed_vocab_size", c.engram_compressed_vocab_size, 1, c.vocab_size},
  };
  for (const Bound& bound : bounds) EMBERKV_RETURN_IF_ERROR(CheckBound(bound));
  int previous = -1;
  for (size_t i = 0; i < c.engram_layer_ids.size(); ++i) {
    const int layer = c.engram_layer_ids[i];
    if (layer <= previous || layer >= c.num_hidden_layers) {
      return InvalidArgument(fmt::format(
          "text_config.engram_layer_ids[{}] is {}; allowed: layers in ascending order, {} to {}", i,
          layer, previous + 1, c.num_hidden_layers - 1));
    }
    previous = layer;
    const int64_t rows = c.engram_num_embeddings[i];
    if (rows < 1 || rows > int64_t{1} << 40) {
      return InvalidArgument(
          fmt::format("text_config.engram_num_embeddings[{}] is {}; allowed: 1 to {}", i, rows,
                      int64_t{1} << 40));
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckModelConfig(const ModelConfig& config) {
  EMBERKV_RETURN_IF_ERROR(CheckBounds(config));
  EMBERKV_RETURN_IF_ERROR(CheckReals(config));
  EMBERKV_RETURN_IF_ERROR(CheckRelations(config));
  return CheckEngram(config);
}

}  // namespace emberkv
