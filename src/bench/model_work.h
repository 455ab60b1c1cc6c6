// What a step must do at least: bytes to read for a decode step, products for a prefill step. The denominators of
// the model's benchmark.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "layout/cache_layout.h"
#include "layout/model_config.h"

namespace emberkv {

// Bytes that a decode step after `context` tokens reads: weights that one token uses, index keys that are
// scored, rows that are attended to. `weight_bytes`: all packed weights.
uint64_t DecodeReadBytes(const ModelConfig& config, const CacheLayout& layout, uint64_t weight_bytes,
                         int64_t context);

// GFLOP (a multiply-add is 2) of the products of a prefill step of `rows` rows after `context` tokens: linear
// layers, attention, and index scores. Of the encoder layers and the last KV source's rows, or of all layers.
double PrefillGflop(const ModelConfig& config, const CacheLayout& layout, int64_t context, int rows, bool is_full);

}  // namespace emberkv
