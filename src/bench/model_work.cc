#include "bench/model_work.h"

#include <algorithm>

namespace emberkv {
namespace {

double RowsOf(const KvSource& source, int64_t tokens) {
  return static_cast<double>(tokens) / source.ratio;
}

// Index rows that a query of the layer scores.
double ScoredRows(const ModelConfig& config, const CacheLayout& layout, const LayerPlan& plan, int64_t context) {
  if (plan.index_source != plan.layer) return 0;
  const double rows = RowsOf(layout.sources[static_cast<size_t>(plan.kv_source)], context);
  if (plan.candidate != CandidateRole::kFilters) return rows;
  return std::min(rows, static_cast<double>(config.candidate_topk_blocks) * config.candidate_block_size);
}

double SelectedRows(const ModelConfig& config, const CacheLayout& layout, const LayerPlan& plan, int64_t context) {
  if (plan.ratio == 0) return 0;
  return std::min(RowsOf(layout.sources[static_cast<size_t>(plan.kv_source)], context),
                  static_cast<double>(config.index_topk));
}

// Multiply-adds a row of one layer's linear parts.
double LinearProducts(const ModelConfig& c, const CacheLayout& layout, const LayerPlan& plan) {
  const double d = c.hidden_size, heads = c.num_attention_heads, dim = c.head_dim;
  const double q = heads * dim, latent = static_cast<double>(c.o_groups) * c.o_lora_rank;
  double products = d * c.q_lora_rank + c.q_lora_rank * q + d * dim + q / c.o_groups * latent + latent * d;
  products += d * c.n_routed_experts + 3.0 * d * c.moe_intermediate_size * (c.num_experts_per_tok + 1);
  products += 2.0 * (2 + c.hc_mult) * c.hc_mult * c.hc_mult * d;
  if (plan.role == LayerRole::kFull) {
    products += d * dim * (layout.sources[static_cast<size_t>(plan.kv_source)].ratio > 1 ? 2 : 1) +
                dim * c.index_head_dim;
  }
  if (plan.index_source == plan.layer) products += (c.q_lora_rank * c.index_head_dim + d) * c.index_n_heads;
  if (plan.engram >= 0) {
    products += (c.hc_mult + 1.0) * d * (c.engram_max_ngram_size - 1.0) * c.engram_n_heads * c.engram_head_dim;
  }
  return products;
}

}  // namespace

uint64_t DecodeReadBytes(const ModelConfig& config, const CacheLayout& layout, uint64_t weight_bytes,
                         int64_t context) {
  const double expert_bytes = 3.0 * config.hidden_size * config.moe_intermediate_size * (0.5 + 1.0 / 32);
  const double unused_experts = std::max(0, config.n_routed_experts - config.num_experts_per_tok);
  double bytes = static_cast<double>(weight_bytes) - unused_experts * expert_bytes * layout.num_layers();
  for (const LayerPlan& plan : layout.layers) {
    bytes += ScoredRows(config, layout, plan, context) * static_cast<double>(layout.key_row_bytes);
    bytes += SelectedRows(config, layout, plan, context) * static_cast<double>(layout.kv_row_bytes);
    bytes += static_cast<double>(layout.window_bytes_per_layer);
  }
  return static_cast<uint64_t>(bytes);
}

double PrefillGflop(const ModelConfig& config, const CacheLayout& layout, int64_t context, int rows, bool is_full) {
  double products = 0;  // a row
  for (const LayerPlan& plan : layout.layers) {
    if (!is_full && plan.layer >= layout.encoder_layers()) break;
    products += LinearProducts(config, layout, plan);
    products += 2.0 * config.num_attention_heads * config.head_dim *
                (config.sliding_window + SelectedRows(config, layout, plan, context));
    products += ScoredRows(config, layout, plan, context) * config.index_n_heads * config.index_head_dim;
  }
  if (!is_full) products += static_cast<double>(config.hidden_size) * config.head_dim;
  return 2e-9 * products * rows;
}

}  // namespace emberkv
