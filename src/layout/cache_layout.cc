#include "layout/cache_layout.h"

#include <algorithm>
#include <string>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr int kMaxBlockSize = 1 << 16;

bool Contains(const std::vector<int>& sorted, int layer) {
  return std::binary_search(sorted.begin(), sorted.end(), layer);
}

// The last member <= layer, or -1 (numerics 1: the source of a layer).
int LastAtOrBefore(const std::vector<int>& sorted, int layer) {
  auto it = std::upper_bound(sorted.begin(), sorted.end(), layer);
  return it == sorted.begin() ? -1 : *(it - 1);
}

Status CheckRatios(const ModelConfig& c) {
  if (c.compress_ratios.size() < static_cast<size_t>(c.num_hidden_layers)) {
    return InvalidArgument(fmt::format(
        "text_config.compress_ratios has {} entries; allowed: at least num_hidden_layers, {}",
        c.compress_ratios.size(), c.num_hidden_layers));
  }
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const int ratio = c.compress_ratios[static_cast<size_t>(layer)];
    if (ratio >= 0 && ratio <= 2) continue;
    return InvalidArgument(fmt::format(
        "text_config.compress_ratios[{}] is {}; allowed: 0 (window only), 1 or 2 tokens per row",
        layer, ratio));
  }
  return Status::Ok();
}

Status CheckSourceList(const ModelConfig& c, const char* name, const std::vector<int>& ids) {
  if (ids.empty()) {
    return InvalidArgument(fmt::format("text_config.{} is []; allowed: at least one layer", name));
  }
  int previous = -1;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= c.num_hidden_layers) {
      return InvalidArgument(
          fmt::format("text_config.{}[{}] is {}; allowed: 0 to {}, below "
                      "num_hidden_layers",
                      name, i, ids[i], c.num_hidden_layers - 1));
    }
    if (ids[i] <= previous) {
      return InvalidArgument(fmt::format(
          "text_config.{}[{}] is {} after {}; rule: layers in ascending order, each once", name, i,
          ids[i], previous));
    }
    if (c.compress_ratios[static_cast<size_t>(ids[i])] == 0) {
      return InvalidArgument(
          fmt::format("text_config.{}[{}] is {}, whose compress_ratios entry is 0; rule: a source "
                      "has ratio 1 or 2",
                      name, i, ids[i]));
    }
    previous = ids[i];
  }
  return Status::Ok();
}

Status CheckSources(const ModelConfig& c) {
  EMBERKV_RETURN_IF_ERROR(CheckSourceList(c, "kv_source_layer_ids", c.kv_source_layer_ids));
  EMBERKV_RETURN_IF_ERROR(CheckSourceList(c, "index_source_layer_ids", c.index_source_layer_ids));
  for (size_t i = 0; i < c.kv_source_layer_ids.size(); ++i) {
    const int layer = c.kv_source_layer_ids[i];
    if (Contains(c.index_source_layer_ids, layer)) continue;
    return InvalidArgument(fmt::format(
        "text_config.kv_source_layer_ids[{}] is {}, which is not among index_source_layer_ids "
        "[{}]; rule: a KV source selects from its own rows",
        i, layer, fmt::join(c.index_source_layer_ids, ", ")));
  }
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const int ratio = c.compress_ratios[static_cast<size_t>(layer)];
    if (ratio == 0) continue;
    const int source = LastAtOrBefore(c.kv_source_layer_ids, layer);
    if (source < 0) {
      return InvalidArgument(fmt::format(
          "text_config.compress_ratios[{}] is {}, before the first of kv_source_layer_ids, {}; "
          "rule: a layer with a ratio reads an earlier or its own source",
          layer, ratio, c.kv_source_layer_ids.front()));
    }
    const int source_ratio = c.compress_ratios[static_cast<size_t>(source)];
    if (ratio != source_ratio) {
      return InvalidArgument(fmt::format(
          "text_config.compress_ratios[{}] is {}; allowed: 0, or {} as its KV source, layer {}",
          layer, ratio, source_ratio, source));
    }
  }
  return Status::Ok();
}

Status CheckCandidates(const ModelConfig& c) {
  const int source = c.candidate_source_layer_id;
  if (!Contains(c.index_source_layer_ids, source)) {
    return InvalidArgument(fmt::format(
        "text_config.candidate_source_layer_id is {}; allowed: one of index_source_layer_ids [{}]",
        source, fmt::join(c.index_source_layer_ids, ", ")));
  }
  const int ratio = c.compress_ratios[static_cast<size_t>(source)];
  if (ratio != 1) {
    return InvalidArgument(fmt::format(
        "text_config.candidate_source_layer_id is {}, whose compress_ratios entry is {}; allowed: "
        "a layer of ratio 1",
        source, ratio));
  }
  // The pool names rows of one KV source; what it would mean for another's is not defined.
  if (c.kv_source_layer_ids.back() > source) {
    return InvalidArgument(fmt::format(
        "text_config.candidate_source_layer_id is {}, before the last of kv_source_layer_ids, {}; "
        "rule: index sources after it read the same rows",
        source, c.kv_source_layer_ids.back()));
  }
  // The newest block may hold a single entry, and is always kept (numerics 9.2, 9.5).
  const int64_t pool = (int64_t{c.candidate_topk_blocks} - 1) * c.candidate_block_size + 1;
  if (pool < c.index_topk) {
    return InvalidArgument(
        fmt::format("text_config.candidate_topk_blocks is {}, a pool of as few as {} rows; rule: "
                    "(candidate_topk_blocks - 1) * candidate_block_size + 1 >= index_topk, {}",
                    c.candidate_topk_blocks, pool, c.index_topk));
  }
  return Status::Ok();
}

Status CheckBlockSize(const ModelConfig& c, int block_size) {
  if (block_size < 1 || block_size > kMaxBlockSize) {
    return InvalidArgument(
        fmt::format("block_size is {}; allowed: 1 to {}", block_size, kMaxBlockSize));
  }
  for (int layer : c.kv_source_layer_ids) {
    const int ratio = c.compress_ratios[static_cast<size_t>(layer)];
    if (block_size % ratio == 0) continue;
    return InvalidArgument(fmt::format(
        "block_size is {}; allowed: a multiple of every ratio, here {} of KV source layer {}",
        block_size, ratio, layer));
  }
  return Status::Ok();
}

// Sizes of rows, then for each source its place in the page.
void LayOutPage(const ModelConfig& c, CacheLayout* layout) {
  layout->kv_row_bytes = RowBytes(RowFormat::kGlobalKv, c.head_dim);
  layout->key_row_bytes = RowBytes(RowFormat::kIndexKey, c.index_head_dim);
  layout->window_row_bytes = RowBytes(RowFormat::kWindowKv, c.head_dim);
  layout->window_bytes_per_layer = static_cast<size_t>(c.sliding_window) * layout->window_row_bytes;

  size_t offset = 0;
  for (int layer : c.kv_source_layer_ids) {
    KvSource source;
    source.layer = layer;
    source.ratio = c.compress_ratios[static_cast<size_t>(layer)];
    source.rows_per_block = layout->block_size / source.ratio;
    const auto rows = static_cast<size_t>(source.rows_per_block);
    source.kv_offset = offset;
    source.key_offset = source.kv_offset + rows * layout->kv_row_bytes;
    offset = source.key_offset + rows * layout->key_row_bytes;
    if (source.ratio > 1) {
      // k and g of all tokens of an open group: one short of a whole group.
      source.tail_slot = layout->num_tails++;
      layout->tail_bytes += static_cast<size_t>(source.ratio - 1) * 2 * sizeof(float) *
                            static_cast<size_t>(c.head_dim);
    }
    layout->sources.push_back(source);
  }
  layout->page_bytes = offset;
}

CandidateRole CandidateRoleOf(const ModelConfig& c, int index_source_layer) {
  if (index_source_layer == c.candidate_source_layer_id) return CandidateRole::kMakes;
  return index_source_layer > c.candidate_source_layer_id ? CandidateRole::kFilters
                                                          : CandidateRole::kNone;
}

LayerPlan PlanLayer(const ModelConfig& c, int layer) {
  LayerPlan plan;
  plan.layer = layer;
  plan.ratio = c.compress_ratios[static_cast<size_t>(layer)];
  auto engram = std::find(c.engram_layer_ids.begin(), c.engram_layer_ids.end(), layer);
  if (engram != c.engram_layer_ids.end()) {
    plan.engram = static_cast<int>(engram - c.engram_layer_ids.begin());
  }
  if (plan.ratio == 0) return plan;

  const int kv_source_layer = LastAtOrBefore(c.kv_source_layer_ids, layer);
  plan.kv_source = static_cast<int>(std::lower_bound(c.kv_source_layer_ids.begin(),
                                                     c.kv_source_layer_ids.end(), kv_source_layer) -
                                    c.kv_source_layer_ids.begin());
  plan.index_source = LastAtOrBefore(c.index_source_layer_ids, layer);
  if (plan.index_source != layer) {
    plan.role = LayerRole::kReuse;
    return plan;
  }
  plan.role = kv_source_layer == layer ? LayerRole::kFull : LayerRole::kReindex;
  plan.candidate = CandidateRoleOf(c, layer);
  return plan;
}

std::optional<int> DecoderBegin(const ModelConfig& c) {
  const int boundary = c.kv_source_layer_ids.back();
  if (boundary == 0) return std::nullopt;
  if (!c.engram_layer_ids.empty() && c.engram_layer_ids.back() > boundary) return std::nullopt;
  return boundary;
}

}  // namespace

const char* LayerRoleName(LayerRole role) {
  switch (role) {
    case LayerRole::kWindowOnly:
      return "window-only";
    case LayerRole::kFull:
      return "Full";
    case LayerRole::kReindex:
      return "Reindex";
    case LayerRole::kReuse:
      return "Reuse";
  }
  return "unknown";
}

double CacheLayout::main_bytes_per_token() const {
  double bytes = 0;
  for (const KvSource& source : sources) {
    bytes += static_cast<double>(kv_row_bytes) / source.ratio;
  }
  return bytes;
}

double CacheLayout::key_bytes_per_token() const {
  double bytes = 0;
  for (const KvSource& source : sources) {
    bytes += static_cast<double>(key_row_bytes) / source.ratio;
  }
  return bytes;
}

Result<CacheLayout> MakeCacheLayout(const ModelConfig& config, int block_size) {
  EMBERKV_RETURN_IF_ERROR(CheckModelConfig(config));
  EMBERKV_RETURN_IF_ERROR(CheckRatios(config));
  EMBERKV_RETURN_IF_ERROR(CheckSources(config));
  EMBERKV_RETURN_IF_ERROR(CheckCandidates(config));
  EMBERKV_RETURN_IF_ERROR(CheckBlockSize(config, block_size));

  CacheLayout layout;
  layout.block_size = block_size;
  LayOutPage(config, &layout);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    layout.layers.push_back(PlanLayer(config, layer));
  }
  layout.decoder_begin = DecoderBegin(config);
  return layout;
}

}  // namespace emberkv
