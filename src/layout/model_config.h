// The text model's part of a released config.json, under its own field names.
//
// A plain value: parsed and checked once (ParseModelConfig), then const and shared freely between
// threads. Nothing here has a default: a missing field is an error that names it, because a default
// that is silently wrong gives a model that is silently wrong (numerics 1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace emberkv {

struct RopeScaling {  // YaRN
  double factor = 0;
  double beta_fast = 0;
  double beta_slow = 0;
  int64_t original_max_position_embeddings = 0;
};

struct ModelConfig {
  // Top level of config.json.
  int bos_token_id = 0;
  int eos_token_id = 0;
  int pad_token_id = 0;

  // text_config.
  int vocab_size = 0;
  int hidden_size = 0;
  int moe_intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int head_dim = 0;
  int qk_rope_head_dim = 0;  // the last channels of a head and of an index head are rotated
  int q_lora_rank = 0;
  int o_lora_rank = 0;
  int o_groups = 0;
  double rms_norm_eps = 0;
  double swiglu_limit = 0;
  int64_t max_position_embeddings = 0;

  double rope_theta = 0;           // layers of ratio 0
  double compress_rope_theta = 0;  // layers of ratio > 0, with YaRN
  RopeScaling rope_scaling;

  int n_routed_experts = 0;
  int n_shared_experts = 0;
  int num_experts_per_tok = 0;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 0;

  int sliding_window = 0;
  std::vector<int> compress_ratios;  // first num_hidden_layers entries; draft stages are cut off
  std::vector<int> kv_source_layer_ids;
  std::vector<int> index_source_layer_ids;
  int index_n_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;
  int candidate_source_layer_id = 0;
  int candidate_topk_blocks = 0;
  int candidate_block_size = 0;

  int hc_mult = 0;
  int hc_sinkhorn_iters = 0;
  double hc_eps = 0;

  std::vector<int> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // rows, one entry per engram layer
  int engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;  // where the prime search starts
  int engram_n_heads = 0;
  int engram_head_dim = 0;
  int engram_pad_token_id = 0;
  int64_t engram_compressed_vocab_size = 0;

  int num_nextn_predict_layers = 0;  // DSpark stages: known, not run yet
};

// Parses and checks config.json text. Every failure names the field, what was found and what is
// allowed. Sizes are checked against each other and against sane bounds, so that later arithmetic
// cannot overflow. Untrusted input: never crashes, never allocates more than the text warrants.
Result<ModelConfig> ParseModelConfig(std::string_view json);

// The size rules of a config, wherever it came from. ParseModelConfig and MakeCacheLayout call it;
// the rules between layers are MakeCacheLayout's.
Status CheckModelConfig(const ModelConfig& config);

// Reads PATH, or PATH/config.json when PATH is a folder.
Result<ModelConfig> LoadModelConfig(const std::string& path);

}  // namespace emberkv
