// The packed weights of a model, by layer and by the names of numerics 2. Internal to model/.
//
// Built once from a checkpoint, then const, but for routed experts larger than memory, which come and go.
// Vectors are fp32 copies of what the file stores.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attention/rope.h"
#include "base/status.h"
#include "layout/cache_layout.h"
#include "linear/packed_matrix.h"
#include "model/engram_hash.h"
#include "model/load_options.h"
#include "model/streamed_experts.h"
#include "weights/checkpoint.h"

namespace emberkv {

struct HyperConnectionWeights {
  PackedMatrix fn;           // [(2 + n) * n, n * hidden] fp32
  std::vector<float> scale;  // [3]: pre, post, comb
  std::vector<float> base;   // [(2 + n) * n]
};

struct CompressorWeights {  // KV source layers
  PackedMatrix wkv;
  std::optional<PackedMatrix> wgate;  // ratio > 1 only
  std::vector<float> norm;
  PackedMatrix index_wk;
  std::vector<float> index_k_norm;
};

struct IndexerWeights {  // index source layers
  PackedMatrix wq_b;
  PackedMatrix weights_proj;
};

struct AttentionWeights {
  PackedMatrix wq_a, wq_b, wkv;
  std::vector<float> q_norm, kv_norm;
  std::vector<float> sink;
  std::vector<PackedMatrix> wo_a;  // one per output group, FP8 values used with unquantized input
  PackedMatrix wo_b;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
};

struct MoeWeights {
  PackedMatrix gate;
  std::vector<float> bias;
  std::vector<ExpertWeights> experts;  // empty where they are streamed
  ExpertWeights shared;
};

struct EngramWeights {
  PackedMatrix wkv;                      // [(n + 1) * hidden, columns * head_dim]
  std::vector<std::vector<float>> qk;    // [n][hidden]: q_weight * k_weight
};

struct LayerWeights {
  HyperConnectionWeights hc_attn, hc_ffn;
  std::vector<float> attn_norm, ffn_norm;
  AttentionWeights attn;
  MoeWeights moe;
  std::optional<EngramWeights> engram;
};

struct ModelWeights {
  std::vector<LayerWeights> layers;
  std::unique_ptr<StreamedExperts> streamed;  // null where all experts are packed
  Bf16Tensor embed;  // rows are read where they lie in the file
  std::vector<float> norm;
  PackedMatrix head;
  RopeTable plain_rope;       // layers of ratio 0
  RopeTable compressed_rope;  // layers of ratio > 0, YaRN
  std::optional<EngramHash> engram_hash;

  size_t bytes() const;  // without what is streamed
};

// `checkpoint` must outlive the weights.
Result<ModelWeights> LoadModelWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const CacheLayout& layout, std::vector<int32_t> token_map,
                                      const LoadOptions& options);

}  // namespace emberkv
