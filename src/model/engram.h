// Engram: n-gram table rows folded into the streams before a layer (numerics 13.4). Internal to model/.
#pragma once

#include "base/status.h"
#include "layout/model_config.h"
#include "model/model_weights.h"
#include "model/step.h"
#include "weights/checkpoint.h"

namespace emberkv {

// Updates the streams of every active row. `index` is the layer's place in engram_layer_ids.
Status ApplyEngram(const EngramWeights& weights, const EngramHash& hash, const EngramTable& table,
                   int index, const ModelConfig& config, Step* step);

}  // namespace emberkv
