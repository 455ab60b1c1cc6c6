#include "layout/scratch.h"

#include <algorithm>

namespace emberkv {
namespace {

constexpr uint64_t kTileRows = 64;         // cache rows decoded at a time (attention)
constexpr uint64_t kQueriesPerGroup = 16;  // queries that share a tile of index keys (attention)
constexpr uint64_t kIndexScores = 16384;   // held at a time by a thread (attention)
constexpr uint64_t kIndexRows = 2304;      // addresses of index keys, likewise
constexpr uint64_t kTopKSlack = 1024;      // scores gathered beyond k (attention)
constexpr uint64_t kGrowth = 2;            // of lists that grow by doubling

uint64_t ActivationsPerRow(const ModelConfig& c) {
  const uint64_t hidden = static_cast<uint64_t>(c.hidden_size);
  const uint64_t n = static_cast<uint64_t>(c.hc_mult);
  const uint64_t head_dim = static_cast<uint64_t>(c.head_dim);
  const uint64_t heads = static_cast<uint64_t>(c.num_attention_heads) * head_dim;
  const uint64_t index_dim = static_cast<uint64_t>(c.index_head_dim);
  const uint64_t index_heads = static_cast<uint64_t>(c.index_n_heads);
  uint64_t floats = (n + 5) * hidden;                           // streams; x, y, two quantized, expert out
  floats += 3 * n + n * n + (2 + n) * n;                        // pre, next pre, post, comb, mixes
  floats += 2 * static_cast<uint64_t>(c.qk_rope_head_dim);      // angles
  floats += static_cast<uint64_t>(c.q_lora_rank) + 2 * heads;   // low-rank query, queries, outputs
  floats += static_cast<uint64_t>(c.o_groups) * static_cast<uint64_t>(c.o_lora_rank);
  floats += head_dim * 4 + index_dim;                           // window row, k, g, latent, key
  floats += index_heads * index_dim + index_heads;              // index queries and weights
  floats += static_cast<uint64_t>(c.n_routed_experts);          // router
  floats += 3 * static_cast<uint64_t>(c.moe_intermediate_size); // gate, up, hidden
  if (!c.engram_layer_ids.empty()) {
    const uint64_t columns =
        static_cast<uint64_t>(c.engram_max_ngram_size - 1) * static_cast<uint64_t>(c.engram_n_heads);
    floats += columns * (static_cast<uint64_t>(c.engram_head_dim) + 2) + (n + 1) * hidden;
  }
  return floats * sizeof(float);
}

}  // namespace

ScratchBytes StepScratch(const ModelConfig& config, const CacheLayout& layout, int rows, int threads) {
  const uint64_t head_dim = static_cast<uint64_t>(config.head_dim);
  const uint64_t heads = static_cast<uint64_t>(config.num_attention_heads);
  const uint64_t index_dim = static_cast<uint64_t>(config.index_head_dim);
  const uint64_t topk = static_cast<uint64_t>(config.index_topk);
  const uint64_t blocks = static_cast<uint64_t>(config.candidate_topk_blocks);

  const uint64_t lists = kGrowth * (topk + blocks) * sizeof(int32_t) + 128;
  ScratchBytes bytes;
  bytes.rows = static_cast<uint64_t>(rows) *
                   (ActivationsPerRow(config) + layout.window_row_bytes + lists) +
               static_cast<uint64_t>(config.vocab_size) * sizeof(float);
  const uint64_t tiles =
      2 * kTileRows * (head_dim + index_dim) + kTileRows * (heads + 1) + heads * (head_dim + 2);
  const uint64_t buffers =
      kQueriesPerGroup * (2 * (topk + blocks) + 2 * kTopKSlack) * 2 * sizeof(float);
  // An index query as codes, with numbers of each head, in heads of 8 at a time.
  const uint64_t index_heads = (static_cast<uint64_t>(config.index_n_heads) + 7) / 8 * 8;
  const uint64_t index_scan = kQueriesPerGroup * index_heads * (index_dim + 11 * sizeof(float)) +
                              kIndexScores * sizeof(float) + kIndexRows * sizeof(void*);
  bytes.threads = static_cast<uint64_t>(threads) * (tiles * sizeof(float) + buffers + index_scan + 4096);
  return bytes;
}

}  // namespace emberkv
