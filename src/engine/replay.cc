#include "engine/replay.h"

#include <fmt/format.h>

#include <algorithm>

namespace emberkv {
namespace {

int64_t FirstWantedRow(const CacheLayout& layout, int sliding_window, ReplayMode mode,
                       int64_t total) {
  switch (mode) {
    case ReplayMode::kBounded:
      return std::max<int64_t>(0, total - sliding_window);
    case ReplayMode::kExact:
      return std::max<int64_t>(0, total - int64_t{layout.decoder_layers()} * sliding_window);
    case ReplayMode::kFull:
      break;
  }
  return 0;
}

}  // namespace

const char* ReplayModeName(ReplayMode mode) {
  switch (mode) {
    case ReplayMode::kBounded:
      return "bounded";
    case ReplayMode::kExact:
      return "exact";
    case ReplayMode::kFull:
      break;
  }
  return "full";
}

Result<ReplayMode> ParseReplayMode(std::string_view name) {
  for (const ReplayMode mode : {ReplayMode::kBounded, ReplayMode::kExact, ReplayMode::kFull}) {
    if (name == ReplayModeName(mode)) return mode;
  }
  return InvalidArgument(
      fmt::format("replay mode is '{}'; allowed: bounded, exact or full", name));
}

ReplayPlan PlanPrefill(const CacheLayout& layout, int sliding_window, ReplayMode mode,
                       const SequenceProgress& held, int64_t total) {
  ReplayPlan plan;
  plan.mode = layout.decoder_begin ? mode : ReplayMode::kFull;
  plan.begin = held.tokens;
  plan.end = total;
  const int64_t wanted = FirstWantedRow(layout, sliding_window, plan.mode, total);
  plan.decoder_run_begin = std::max(wanted, held.tokens);
  // A restart that was cut off before its first row has left no decoder rows: held.tokens is the
  // first that can be had then.
  plan.decoder_begin = wanted > held.tokens ? wanted : std::min(held.decoder_begin, held.tokens);
  if (plan.mode != mode) {
    plan.note = fmt::format("this model's layers have no encoder and decoder: replay {} runs as full",
                            ReplayModeName(mode));
  } else if (plan.decoder_begin > wanted) {
    plan.note = fmt::format(
        "replay {} wants decoder rows from token {} on; earlier prefills left those from {} on",
        ReplayModeName(mode), wanted, plan.decoder_begin);
  }
  return plan;
}

int64_t PlannedTokenLayers(const CacheLayout& layout, const ReplayPlan& plan) {
  return (plan.end - plan.begin) * layout.encoder_layers() +
         (plan.end - plan.decoder_run_begin) * layout.decoder_layers();
}

int64_t FullTokenLayers(const CacheLayout& layout, int64_t tokens) {
  return tokens * layout.num_layers();
}

}  // namespace emberkv
