// What a config means for the cache: the role of every layer, and the bytes of every row, page,
// window and tail. Derived by pure functions; no released number appears as a constant anywhere.
//
// A plain value: built once by MakeCacheLayout, then const and shared freely between threads.
//
// A page holds the global KV of one block of `block_size` tokens: for each KV source in ascending
// order its main KV rows, then its index key rows. Row j of a source of ratio r lies in block
// j / rows_per_block, at j % rows_per_block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "layout/model_config.h"

namespace emberkv {

enum class LayerRole {
  kWindowOnly,  // ratio 0: sliding-window attention alone
  kFull,        // KV source: own compressor, index keys, index queries
  kReindex,     // own index queries against its KV source's index keys
  kReuse,       // the KV source's rows and the index source's selection
};

const char* LayerRoleName(LayerRole role);

enum class CandidateRole {
  kNone,
  kMakes,    // computes the candidate pool of each query (and does not filter by it itself)
  kFilters,  // selects within the pool
};

// One KV source layer and its place in a page.
struct KvSource {
  int layer = 0;
  int ratio = 0;           // tokens per row
  int rows_per_block = 0;  // block_size / ratio
  size_t kv_offset = 0;    // of the main KV rows within a page, bytes
  size_t key_offset = 0;   // of the index key rows within a page, bytes
  int tail_slot = -1;      // index of its compressor tail; -1 when ratio is 1 (no tail)
};

struct LayerPlan {
  int layer = 0;
  LayerRole role = LayerRole::kWindowOnly;
  int ratio = 0;
  int kv_source = -1;     // index into CacheLayout::sources; -1 for window-only layers
  int index_source = -1;  // layer id whose selection this layer uses (itself for Full and Reindex)
  CandidateRole candidate = CandidateRole::kNone;
  int engram = -1;  // index into engram_layer_ids; -1 when no Engram runs before this layer
};

struct CacheLayout {
  std::vector<LayerPlan> layers;
  std::vector<KvSource> sources;

  int block_size = 0;           // tokens per page
  size_t kv_row_bytes = 0;      // one packed main KV row
  size_t key_row_bytes = 0;     // one packed index key row
  size_t window_row_bytes = 0;  // one packed window row of one layer
  size_t page_bytes = 0;        // all global KV of one block

  // The decoder begins at the last KV source layer, whose rows are projected from the encoder's
  // output for every token. nullopt, and every prompt runs in `full` mode, when an Engram layer
  // lies beyond it or no layer lies before it. An Engram at the very boundary is no obstacle: it
  // changes the stream before that layer's projection, and there the encoder's output has every
  // row.
  std::optional<int> decoder_begin;

  size_t tail_bytes = 0;  // fp32 k and g of an open group, all sources of ratio > 1
  int num_tails = 0;

  int num_layers() const { return static_cast<int>(layers.size()); }
  // Layers [0, encoder_layers()) need every token; all layers when there is no split.
  int encoder_layers() const { return decoder_begin.value_or(num_layers()); }
  int decoder_layers() const { return num_layers() - encoder_layers(); }

  // Sum over sources of 1 / ratio, times the bytes of a row pair: exact because block_size is a
  // multiple of every ratio.
  double main_bytes_per_token() const;
  double key_bytes_per_token() const;
  double bytes_per_token() const { return main_bytes_per_token() + key_bytes_per_token(); }

  size_t window_bytes_per_layer = 0;  // sliding_window rows
  size_t window_bytes() const { return window_bytes_per_layer * layers.size(); }
  size_t encoder_window_bytes() const {
    return window_bytes_per_layer * static_cast<size_t>(encoder_layers());
  }
};

inline constexpr int kDefaultBlockSize = 128;

// Fails when the config is inconsistent, naming field, value and rule. `block_size` must be a
// multiple of every ratio.
Result<CacheLayout> MakeCacheLayout(const ModelConfig& config, int block_size = kDefaultBlockSize);

}  // namespace emberkv
