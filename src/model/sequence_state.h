// What one sequence carries between steps: views into memory that the engine owns.
//
// The model reads and writes through it during a step and keeps nothing. One thread (the model thread)
// uses a state at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/cache_layout.h"

namespace emberkv {

struct SequenceState {
  // All token ids of the sequence so far, the step's included. Position = index.
  const int32_t* tokens = nullptr;

  // Block table: one page per block, covering every position of the step.
  const uint8_t* const* pages = nullptr;      // read: rows of [0, end)
  uint8_t* const* writable_pages = nullptr;   // the same pages; rows below write_begin stay untouched

  // Window rings [layer][sliding_window] of packed rows: position p lies in slot p % sliding_window.
  uint8_t* windows = nullptr;  // CacheLayout::window_bytes()

  // Compressor tails [tail][2][head_dim], fp32: k and g of the first token of an open group.
  float* tails = nullptr;  // CacheLayout::tail_bytes

  // A replay that starts at s sees window rows from s on only (architecture 4). Encoder layers compute
  // rows from encoder_begin on, decoder layers from decoder_begin on.
  int64_t encoder_begin = 0;
  int64_t decoder_begin = 0;

  // Global rows of tokens below this position are never written; a multiple of every ratio.
  int64_t write_begin = 0;
};

}  // namespace emberkv
