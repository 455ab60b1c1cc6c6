#include "weights/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace emberkv {
namespace {

constexpr int64_t kScaleGroup = 32;
constexpr int64_t kMaxTensors = int64_t{1} << 22;

int64_t ScaleGroups(int64_t n) { return (n + kScaleGroup - 1) / kScaleGroup; }

bool Contains(const std::vector<int>& ids, int id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Collects the tensors of a config; the methods follow the table of numerics 2.
class Builder {
 public:
  explicit Builder(const ModelConfig& config) : c_(config) {}

  std::vector<TensorSpec> Build() && {
    Add("embed.weight", DType::kBF16, {c_.vocab_size, c_.hidden_size}, TensorFamily::kEmbedding);
    Add("head.weight", DType::kBF16, {c_.vocab_size, c_.hidden_size}, TensorFamily::kEmbedding);
    Add("norm.weight", DType::kBF16, {c_.hidden_size}, TensorFamily::kNorm);
    for (int layer = 0; layer < c_.num_hidden_layers; ++layer) AddLayer(layer);
    for (size_t i = 0; i < c_.engram_layer_ids.size(); ++i) {
      AddEngram(c_.engram_layer_ids[i], c_.engram_num_embeddings[i]);
    }
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, DType dtype, std::vector<int64_t> shape, TensorFamily family) {
    tensors_.push_back({std::move(name), dtype, std::move(shape), family});
  }

  // One scale per 32x32 tile.
  void AddFp8(const std::string& name, int64_t rows, int64_t cols, TensorFamily family) {
    Add(name + ".weight", DType::kF8E4M3, {rows, cols}, family);
    Add(name + ".scale", DType::kF8E8M0, {ScaleGroups(rows), ScaleGroups(cols)}, family);
  }

  // Two codes a byte, one scale per row and 32 columns.
  void AddFp4(const std::string& name, int64_t rows, int64_t cols, TensorFamily family) {
    Add(name + ".weight", DType::kI8, {rows, cols / 2}, family);
    Add(name + ".scale", DType::kF8E8M0, {rows, ScaleGroups(cols)}, family);
  }

  void AddLayer(int layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    const int64_t hidden = c_.hidden_size;
    Add(prefix + "attn_norm.weight", DType::kBF16, {hidden}, TensorFamily::kNorm);
    Add(prefix + "ffn_norm.weight", DType::kBF16, {hidden}, TensorFamily::kNorm);
    const int64_t mixes = int64_t{2 + c_.hc_mult} * c_.hc_mult;  // pre, post and comb
    for (const char* sublayer : {"hc_attn_", "hc_ffn_"}) {
      const std::string hc = prefix + sublayer;
      Add(hc + "fn", DType::kF32, {mixes, c_.hc_mult * hidden}, TensorFamily::kHyperConnection);
      Add(hc + "base", DType::kF32, {mixes}, TensorFamily::kHyperConnection);
      Add(hc + "scale", DType::kF32, {3}, TensorFamily::kHyperConnection);
    }
    AddAttention(prefix + "attn.");
    if (Contains(c_.kv_source_layer_ids, layer)) AddKvSource(prefix + "attn.", layer);
    if (Contains(c_.index_source_layer_ids, layer)) AddIndexSource(prefix + "attn.indexer.");
    AddFfn(prefix + "ffn.");
  }

  void AddAttention(const std::string& prefix) {
    const int64_t hidden = c_.hidden_size;
    const int64_t heads = c_.num_attention_heads;
    const int64_t outputs = int64_t{c_.o_groups} * c_.o_lora_rank;
    const auto family = TensorFamily::kAttention;
    AddFp8(prefix + "wq_a", c_.q_lora_rank, hidden, family);
    AddFp8(prefix + "wq_b", heads * c_.head_dim, c_.q_lora_rank, family);
    AddFp8(prefix + "wkv", c_.head_dim, hidden, family);
    AddFp8(prefix + "wo_a", outputs, heads * c_.head_dim / c_.o_groups, family);
    AddFp8(prefix + "wo_b", hidden, outputs, family);
    Add(prefix + "q_norm.weight", DType::kBF16, {c_.q_lora_rank}, family);
    Add(prefix + "kv_norm.weight", DType::kBF16, {c_.head_dim}, family);
    Add(prefix + "attn_sink", DType::kF32, {heads}, family);
  }

  void AddKvSource(const std::string& prefix, int layer) {
    const auto family = TensorFamily::kCompressor;
    const int64_t head_dim = c_.head_dim;
    Add(prefix + "compressor.wkv.weight", DType::kBF16, {head_dim, c_.hidden_size}, family);
    // A row of one token has nothing to weigh.
    if (c_.compress_ratios[static_cast<size_t>(layer)] > 1) {
      Add(prefix + "compressor.wgate.weight", DType::kBF16, {head_dim, c_.hidden_size}, family);
    }
    Add(prefix + "compressor.norm.weight", DType::kBF16, {head_dim}, family);
    Add(prefix + "indexer.wk.weight", DType::kBF16, {c_.index_head_dim, head_dim},
        TensorFamily::kIndexer);
    Add(prefix + "indexer.k_norm.weight", DType::kBF16, {c_.index_head_dim},
        TensorFamily::kIndexer);
  }

  void AddIndexSource(const std::string& prefix) {
    const int64_t rows = int64_t{c_.index_n_heads} * c_.index_head_dim;
    AddFp8(prefix + "wq_b", rows, c_.q_lora_rank, TensorFamily::kIndexer);
    Add(prefix + "weights_proj.weight", DType::kBF16, {c_.index_n_heads, c_.hidden_size},
        TensorFamily::kIndexer);
  }

  void AddFfn(const std::string& prefix) {
    const int64_t hidden = c_.hidden_size;
    const int64_t inner = c_.moe_intermediate_size;
    Add(prefix + "gate.weight", DType::kBF16, {c_.n_routed_experts, hidden}, TensorFamily::kRouter);
    Add(prefix + "gate.bias", DType::kF32, {c_.n_routed_experts}, TensorFamily::kRouter);
    Add(prefix + "gate.bias_vl", DType::kF32, {c_.n_routed_experts}, TensorFamily::kRouter);
    for (int expert = 0; expert < c_.n_routed_experts; ++expert) {
      const std::string name = fmt::format("{}experts.{}.", prefix, expert);
      AddFp4(name + "w1", inner, hidden, TensorFamily::kRoutedExperts);
      AddFp4(name + "w2", hidden, inner, TensorFamily::kRoutedExperts);
      AddFp4(name + "w3", inner, hidden, TensorFamily::kRoutedExperts);
    }
    const std::string shared = prefix + "shared_experts.";
    AddFp8(shared + "w1", inner, hidden, TensorFamily::kSharedExperts);
    AddFp8(shared + "w2", hidden, inner, TensorFamily::kSharedExperts);
    AddFp8(shared + "w3", inner, hidden, TensorFamily::kSharedExperts);
  }

  void AddEngram(int layer, int64_t num_rows) {
    const std::string prefix = fmt::format("layers.{}.engram.", layer);
    const int64_t dim = c_.engram_head_dim;
    const int64_t gathered = int64_t{c_.engram_max_ngram_size - 1} * c_.engram_n_heads * dim;
    // Scales per row and 32 channels here, not per tile: rows are read one by one.
    Add(prefix + "embed.weight", DType::kF8E4M3, {num_rows, dim}, TensorFamily::kEngramTable);
    Add(prefix + "embed.scale", DType::kF8E8M0, {num_rows, ScaleGroups(dim)},
        TensorFamily::kEngramTable);
    AddFp8(prefix + "wkv", int64_t{c_.hc_mult + 1} * c_.hidden_size, gathered,
           TensorFamily::kEngram);
    Add(prefix + "q_weight", DType::kBF16, {c_.hc_mult, c_.hidden_size}, TensorFamily::kEngram);
    Add(prefix + "k_weight", DType::kBF16, {c_.hc_mult, c_.hidden_size}, TensorFamily::kEngram);
  }

  const ModelConfig& c_;
  std::vector<TensorSpec> tensors_;
};

// Edits (insert, delete, replace) between two names, or `limit` + 1 when there are more.
size_t EditDistance(std::string_view a, std::string_view b, size_t limit) {
  const size_t gap = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (gap > limit) return limit + 1;
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    size_t best = row[0];
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      best = std::min(best, row[j]);
    }
    if (best > limit) return limit + 1;
  }
  return row[b.size()];
}

}  // namespace

const char* TensorFamilyName(TensorFamily family) {
  switch (family) {
    case TensorFamily::kEmbedding:
      return "embedding, head";
    case TensorFamily::kNorm:
      return "norms";
    case TensorFamily::kHyperConnection:
      return "hyper-connections";
    case TensorFamily::kAttention:
      return "attention";
    case TensorFamily::kCompressor:
      return "compressor";
    case TensorFamily::kIndexer:
      return "indexer";
    case TensorFamily::kRouter:
      return "router";
    case TensorFamily::kRoutedExperts:
      return "routed experts";
    case TensorFamily::kSharedExperts:
      return "shared experts";
    case TensorFamily::kEngram:
      return "Engram";
    case TensorFamily::kEngramTable:
      return "Engram tables";
    case TensorFamily::kDraftStages:
      return "mtp.*";
    case TensorFamily::kVision:
      return "vision.*";
    case TensorFamily::kAligner:
      return "aligner.*";
    case TensorFamily::kImageTokens:
      return "image_*";
  }
  return "unknown";
}

std::optional<TensorFamily> UnusedFamilyOf(std::string_view name) {
  if (name.starts_with("mtp.")) return TensorFamily::kDraftStages;
  if (name.starts_with("vision.")) return TensorFamily::kVision;
  if (name.starts_with("aligner.")) return TensorFamily::kAligner;
  if (name == "image_start" || name == "image_end" || name == "image_newline") {
    return TensorFamily::kImageTokens;
  }
  return std::nullopt;
}

Result<Inventory> Inventory::Make(const ModelConfig& config) {
  const int64_t estimate =
      int64_t{config.num_hidden_layers} * (6 * int64_t{config.n_routed_experts} + 40);
  if (estimate > kMaxTensors) {
    return InvalidArgument(
        fmt::format("num_hidden_layers {} and n_routed_experts {} demand about {} tensors; at most "
                    "{} are handled",
                    config.num_hidden_layers, config.n_routed_experts, estimate, kMaxTensors));
  }
  Inventory inventory;
  inventory.tensors_ = Builder(config).Build();
  std::sort(inventory.tensors_.begin(), inventory.tensors_.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  return inventory;
}

const TensorSpec* Inventory::Find(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorSpec& a, std::string_view b) { return a.name < b; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

std::string Inventory::Suggestion(std::string_view unknown) const {
  // Other tools put a prefix ("model.") in front of every name.
  for (size_t dot = unknown.find('.'); dot != std::string_view::npos;
       dot = unknown.find('.', dot + 1)) {
    const std::string_view tail = unknown.substr(dot + 1);
    if (tail.find('.') != std::string_view::npos && Find(tail) != nullptr) return std::string(tail);
  }
  size_t limit = std::min<size_t>(3, unknown.size() / 3);
  std::string closest;
  for (const TensorSpec& spec : tensors_) {
    const size_t distance = EditDistance(unknown, spec.name, limit);
    if (distance > limit) continue;
    closest = spec.name;
    if (distance <= 1) break;
    limit = distance - 1;
  }
  return closest;
}

}  // namespace emberkv
