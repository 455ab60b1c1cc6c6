// How a fresh session goes on after a prefix hit (docs/architecture.md 4). The hit gives global rows of
// tokens [0, hit); encoder windows at the hit come from a checkpoint or are rebuilt by replaying rows
// before it.
//
// Pure functions of their arguments: any thread may call them.
#pragma once

#include <cstdint>

#include "engine/replay.h"
#include "layout/cache_layout.h"

namespace emberkv {

struct ResumePlan {
  int64_t hit = 0;            // tokens whose global rows are taken as they are
  int64_t encoder_begin = 0;  // first row that runs; rows [encoder_begin, hit) are replayed
  int64_t decoder_begin = 0;  // first row that the decoder layers run
  bool restores_checkpoint = false;  // the encoder windows at `hit` are the checkpoint's

  // Whether rows from `hit` on are what a cold run computes. If not, their blocks carry the provenance
  // replayed@hit.
  bool is_canonical = true;

  int64_t replayed() const { return hit - encoder_begin; }
};

// Whether `mode` may use a hit at all, and pages whose rows came from a bounded replay: `full` takes
// nothing, `exact` canonical pages only.
bool MayReuse(ReplayMode mode);
bool MayReuseReplayed(ReplayMode mode);

// hit: a multiple of the block size, below `total`, the prompt's length. A layout without encoder and
// decoder is resumed exactly, whatever the mode.
ResumePlan PlanResume(const CacheLayout& layout, int sliding_window, ReplayMode mode, int64_t hit,
                      bool has_checkpoint, int64_t total);

}  // namespace emberkv
