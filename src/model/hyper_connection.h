// Single-pass mHC around a sublayer (numerics 4): reads and updates a Step's streams. Internal to model/.
#pragma once

#include "layout/model_config.h"
#include "model/model_weights.h"
#include "model/step.h"

namespace emberkv {

// pre, post and comb of every active row from its streams, into scratch next_pre, post and comb.
void ComputeMixes(const HyperConnectionWeights& weights, const ModelConfig& config, Step* step);

// scratch x = norm(collapse of the streams by step->pre): the input of a sublayer.
void SublayerInput(const std::vector<float>& norm, const ModelConfig& config, Step* step);

// Folds the sublayer's output scratch y into the streams, then makes next_pre the current pre: a
// sublayer is fed by the pre that the one before it computed.
void FoldOutput(const ModelConfig& config, Step* step);

}  // namespace emberkv
