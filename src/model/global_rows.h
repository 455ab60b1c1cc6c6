// A KV source layer's global rows: compressor, index keys, packing into pages (numerics 7 and 8).
// Internal to model/.
#pragma once

#include "base/status.h"
#include "layout/cache_layout.h"
#include "model/model_weights.h"
#include "model/step.h"

namespace emberkv {

// Writes the main KV and index key rows of all groups that scratch x completes, and the compressor
// tails. Rows of groups that begin below the sequence's write_begin are left alone.
Status WriteGlobalRows(const CompressorWeights& weights, const RopeTable& rope, const KvSource& source,
                       const ModelConfig& config, const CacheLayout& layout, Step* step);

}  // namespace emberkv
