#include "engine/resume.h"

#include <algorithm>

namespace emberkv {
namespace {

int64_t Before(int64_t position, int64_t rows) { return std::max<int64_t>(0, position - rows); }

}  // namespace

bool MayReuse(ReplayMode mode) { return mode != ReplayMode::kFull; }
bool MayReuseReplayed(ReplayMode mode) { return mode == ReplayMode::kBounded; }

ResumePlan PlanResume(const CacheLayout& layout, int sliding_window, ReplayMode mode, int64_t hit,
                      bool has_checkpoint, int64_t total) {
  const bool is_bounded = mode == ReplayMode::kBounded && layout.decoder_begin.has_value();
  const int64_t decoder_rows =
      is_bounded ? sliding_window : int64_t{layout.decoder_layers()} * sliding_window;
  ResumePlan plan;
  plan.hit = hit;
  plan.decoder_begin = layout.decoder_begin ? Before(total, decoder_rows) : 0;
  plan.encoder_begin = hit;
  plan.restores_checkpoint = has_checkpoint;
  // The decoder is fed with encoder outputs, which no cache keeps: where it wants rows below the hit,
  // those rows run again even if the windows at the hit are alive.
  const bool wants_rows_below = layout.decoder_begin.has_value() && plan.decoder_begin < hit;
  if (hit == 0 || (has_checkpoint && !wants_rows_below)) return plan;
  if (is_bounded) {
    plan.encoder_begin = Before(hit, sliding_window);
    plan.is_canonical = has_checkpoint || plan.encoder_begin == 0;
    return plan;
  }
  // Exact windows of Le layers want Le x W rows before the first row that matters.
  const int64_t first = wants_rows_below ? plan.decoder_begin : hit;
  plan.encoder_begin = Before(first, int64_t{layout.encoder_layers()} * sliding_window);
  plan.restores_checkpoint = false;  // the replayed windows are exact themselves
  return plan;
}

}  // namespace emberkv
