#include "layout/budget.h"

#include <algorithm>
#include <map>

#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr double kBf16 = 1;
constexpr double kFp8 = 0.5;
constexpr double kFp4 = 0.25;

// Operations of a product of one row with an [out, in] matrix.
double Linear(double out, double in) { return 2 * out * in; }

double AttentionProjections(const ModelConfig& c) {
  const double heads_width = double(c.num_attention_heads) * c.head_dim;
  const double groups_width = double(c.o_groups) * c.o_lora_rank;
  return Linear(c.q_lora_rank, c.hidden_size) + Linear(heads_width, c.q_lora_rank) +
         Linear(c.head_dim, c.hidden_size) + Linear(groups_width, heads_width / c.o_groups) +
         Linear(c.hidden_size, groups_width);
}

double ExpertOperations(const ModelConfig& c) {
  return 3 * Linear(c.moe_intermediate_size, c.hidden_size);
}

// Both mixes (attention and FFN) of a layer: pre, post and comb from all copies of the stream.
double HyperConnections(const ModelConfig& c) {
  const double mixes = c.hc_mult * (2.0 + c.hc_mult);
  return 2 * Linear(mixes, double(c.hc_mult) * c.hidden_size);
}

double EngramProjection(const ModelConfig& c) {
  const double gathered =
      double(c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim;
  return Linear((c.hc_mult + 1.0) * c.hidden_size, gathered);
}

// wkv, a gate where rows pool several tokens, and the index key of each finished row.
double Compressor(const ModelConfig& c, const KvSource& source) {
  const int matrices = source.ratio > 1 ? 2 : 1;
  return matrices * Linear(c.head_dim, c.hidden_size) +
         Linear(c.index_head_dim, c.head_dim) / source.ratio;
}

bool IsIndexSource(const LayerPlan& layer) {
  return layer.role == LayerRole::kFull || layer.role == LayerRole::kReindex;
}

// Rows a query scores in one layer.
double ScoredRows(const ModelConfig& c, const LayerPlan& layer, int64_t tokens) {
  const int64_t rows = tokens / layer.ratio;
  if (layer.candidate != CandidateRole::kFilters) return double(rows);
  return double(std::min(rows, int64_t{c.candidate_topk_blocks} * c.candidate_block_size));
}

double AttendedRows(const ModelConfig& c, const LayerPlan& layer, int64_t tokens) {
  const int64_t window = std::min<int64_t>(tokens, c.sliding_window);
  const int64_t selected =
      layer.ratio == 0 ? 0 : std::min<int64_t>(tokens / layer.ratio, c.index_topk);
  return double(window + selected);
}

}  // namespace

SessionMemory MemoryOfSession(const CacheLayout& layout, int64_t tokens) {
  SessionMemory memory;
  memory.tokens = tokens;
  memory.pages = (tokens + layout.block_size - 1) / layout.block_size;
  memory.global_bytes = uint64_t(memory.pages) * layout.page_bytes;
  memory.window_bytes = layout.window_bytes();
  memory.encoder_window_bytes = layout.encoder_window_bytes();
  memory.tail_bytes = layout.tail_bytes;
  return memory;
}

uint64_t SessionBytes(const SessionMemory& session, Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return session.global_bytes + session.window_bytes + session.tail_bytes;
    case Tier::kHost:
      return session.global_bytes + session.encoder_window_bytes + session.tail_bytes;
    case Tier::kSsd:
      return session.global_bytes;
  }
  return 0;
}

TierFit FitTier(const CacheLayout& layout, Tier tier, uint64_t tier_bytes, int64_t session_tokens) {
  TierFit fit;
  const uint64_t each = SessionBytes(MemoryOfSession(layout, session_tokens), tier);
  if (each > 0) fit.sessions = int64_t(tier_bytes / each);
  fit.tokens = int64_t(tier_bytes / layout.page_bytes) * layout.block_size;
  return fit;
}

double RetainedBytes(const CacheLayout& layout, double tokens_per_second, double hours) {
  return tokens_per_second * hours * 3600 * layout.bytes_per_token();
}

std::vector<OperationTerm> DecodeOperations(const ModelConfig& c, const CacheLayout& layout,
                                            int64_t tokens) {
  double compressors = 0;
  for (const KvSource& source : layout.sources) compressors += Compressor(c, source);

  const double index_width = double(c.index_n_heads) * c.index_head_dim;
  double queries = 0, head_weights = 0, scan = 0, attention = 0;
  for (const LayerPlan& layer : layout.layers) {
    // q . k and p . v, for every head
    attention += AttendedRows(c, layer, tokens) * 2 * Linear(c.num_attention_heads, c.head_dim);
    if (!IsIndexSource(layer)) continue;
    queries += Linear(index_width, c.q_lora_rank);
    head_weights += Linear(c.index_n_heads, c.hidden_size);
    scan += ScoredRows(c, layer, tokens) * Linear(c.index_n_heads, c.index_head_dim);
  }

  const double layers = layout.num_layers();
  const double engrams = double(c.engram_layer_ids.size());
  return {
      {"attention projections", kFp8, layers * AttentionProjections(c)},
      {"routed experts", kFp8, layers * c.num_experts_per_tok * ExpertOperations(c)},
      {"shared experts", kFp8, layers * c.n_shared_experts * ExpertOperations(c)},
      {"router", kBf16, layers * Linear(c.n_routed_experts, c.hidden_size)},
      {"mHC", kBf16, layers * HyperConnections(c)},
      {"compressors", kBf16, compressors},
      {"index queries", kFp8, queries},
      {"index head weights", kBf16, head_weights},
      {"Engram", kFp8, engrams == 0 ? 0 : engrams * EngramProjection(c)},
      {"head", kBf16, Linear(c.vocab_size, c.hidden_size)},
      {"attention", kBf16, attention},
      {"index scan", kFp4, scan},
  };
}

double TotalWeighted(const std::vector<OperationTerm>& terms) {
  double total = 0;
  for (const OperationTerm& term : terms) total += term.weighted();
  return total;
}

TokenLayers PrefillTokenLayers(const ModelConfig& config, const CacheLayout& layout,
                               int64_t tokens) {
  const int64_t replayed = std::min<int64_t>(tokens, config.sliding_window);
  TokenLayers count;
  count.computed = tokens * layout.encoder_layers() + replayed * layout.decoder_layers();
  count.full = tokens * layout.num_layers();
  return count;
}

int64_t RowGeometry::row_bytes() const {
  int64_t bits = 0;
  for (const RowField& field : fields) bits += int64_t{field.count} * field.bits;
  return bits / 8;
}

double RowGeometry::bytes_per_token() const {
  return double(layers) * double(row_bytes()) / tokens_per_row;
}

double Generation::bytes_per_token() const {
  double bytes = 0;
  for (const RowGeometry& geometry : rows) bytes += geometry.bytes_per_token();
  return bytes;
}

Generation GenerationV1() {
  constexpr int kHeads = 8, kHeadDim = 128, kLayers = 95;
  return {"V1 67B",
          "DeepSeek LLM 67B config; figure 1b of arXiv 2609.19969",
          {{"K and V of 8 heads, BF16", kLayers, 1, {{2 * kHeads * kHeadDim, 16}}}}};
}

Generation GenerationV32() {
  constexpr int kLayers = 61;
  return {"V3.2",
          "FlashMLA row formats; figure 1b of arXiv 2609.19969",
          {{"latent: 512 FP8, 4 FP32 scales, 64 BF16", kLayers, 1, {{512, 8}, {4, 32}, {64, 16}}},
           {"index key: 128 FP8, 1 FP32 scale", kLayers, 1, {{128, 8}, {1, 32}}}}};
}

Generation GenerationV4Flash() {
  // Of 43 layers two have windows only.
  constexpr int kCsaLayers = 21, kCsaTokens = 4, kHcaLayers = 20, kHcaTokens = 128;
  // 7 scales and a byte that aligns the row
  const std::vector<RowField> latent = {{448, 8}, {64, 16}, {8, 8}};
  return {"V4-Flash",
          "V4 report arXiv 2606.19348; FlashMLA row formats",
          {{"CSA latent: 448 FP8, 64 BF16, 8 B scales", kCsaLayers, kCsaTokens, latent},
           {"CSA index key: 128 FP4, 4 scales", kCsaLayers, kCsaTokens, {{128, 4}, {4, 8}}},
           {"HCA latent: as CSA", kHcaLayers, kHcaTokens, latent}}};
}

Generation GenerationOf(const ModelConfig& config, const CacheLayout& layout) {
  std::map<int, int> sources_of_ratio;
  for (const KvSource& source : layout.sources) ++sources_of_ratio[source.ratio];

  const int kv_scales = config.head_dim / ScaleGroup(RowFormat::kGlobalKv);
  const int key_scales = config.index_head_dim / ScaleGroup(RowFormat::kIndexKey);
  Generation generation{"this config", "its config.json", {}};
  for (auto [ratio, count] : sources_of_ratio) {
    generation.rows.push_back({"main KV", count, ratio, {{config.head_dim, 4}, {kv_scales, 8}}});
    generation.rows.push_back(
        {"index key", count, ratio, {{config.index_head_dim, 4}, {key_scales, 8}}});
  }
  return generation;
}

}  // namespace emberkv
