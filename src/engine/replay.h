// Decoder replay: which of a prompt's rows run through the decoder layers. All rows run through the
// encoder layers, which fill every KV source; the decoder needs only the last rows (architecture,
// section 4).
//
// Pure functions of their arguments: any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "layout/cache_layout.h"

namespace emberkv {

enum class ReplayMode {
  kBounded,  // the last sliding_window rows: constant cost, approximates
  kExact,    // the last decoder layers x sliding_window rows: last logits and windows bit for bit
  kFull,     // every row
};

const char* ReplayModeName(ReplayMode mode);
Result<ReplayMode> ParseReplayMode(std::string_view name);

// What a sequence's caches hold: encoder layers of tokens [0, tokens), decoder layers of
// [decoder_begin, tokens), of which the last sliding_window are alive as windows.
struct SequenceProgress {
  int64_t tokens = 0;
  int64_t decoder_begin = 0;
};

struct ReplayPlan {
  ReplayMode mode = ReplayMode::kBounded;  // kFull where the layers have no split
  int64_t decoder_begin = 0;               // the decoder's caches will hold rows from here on

  // Rows that this prefill runs: encoder layers [begin, end), decoder layers [decoder_run_begin, end).
  int64_t begin = 0;
  int64_t end = 0;
  int64_t decoder_run_begin = 0;

  // Why the result is less than the mode promises or other than what was asked; empty when it is not.
  std::string note;
};

// The plan of a prefill that brings a sequence from `held` to `total` tokens (total > held.tokens).
// The decoder continues at held.tokens when the mode wants rows from there or from before, and
// restarts at the first wanted row when that lies ahead. Rows that an earlier prefill did not run
// through the decoder are not had back: `full` on a continued sequence runs its new rows in full, and
// the note tells when the result of `exact` or `full` therefore is not that of a full forward.
ReplayPlan PlanPrefill(const CacheLayout& layout, int sliding_window, ReplayMode mode,
                       const SequenceProgress& held, int64_t total);

// Rows x layers that the plan computes, and that `full` on a fresh sequence would for the same rows.
int64_t PlannedTokenLayers(const CacheLayout& layout, const ReplayPlan& plan);
int64_t FullTokenLayers(const CacheLayout& layout, int64_t tokens);

}  // namespace emberkv
