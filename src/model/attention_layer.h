// The attention sublayer (numerics 6): projections, window rows, selection, sparse attention and output
// projection. Internal to model/.
#pragma once

#include "base/status.h"
#include "layout/cache_layout.h"
#include "model/model_weights.h"
#include "model/step.h"

namespace emberkv {

// scratch y = attention of scratch x. The layer's global rows are already written. Updates the window
// rings and, on index source layers, step->selections.
Status RunAttention(const LayerPlan& plan, const AttentionWeights& weights, const ModelConfig& config,
                    const CacheLayout& layout, Step* step);

}  // namespace emberkv
