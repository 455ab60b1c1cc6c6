#include "engine/prefix_forecast.h"

#include <algorithm>

namespace emberkv {
namespace {

// Adds the blocks at the front of `chain` that are there; returns whether there were any.
bool AddFound(std::span<const BlockIdentity> chain, const FindTiers& find_tiers, PrefixForecast* forecast) {
  const std::vector<std::optional<CacheTier>> tiers = find_tiers(chain);
  const auto run = std::ranges::find_if_not(tiers, [](const auto& tier) { return tier.has_value(); }) - tiers.begin();
  forecast->blocks.insert(forecast->blocks.end(), chain.begin(), chain.begin() + run);
  return run > 0;
}

}  // namespace

PrefixForecast ForecastPrefix(const CacheLayout& layout, int sliding_window, const BlockHash& root,
                              std::span<const int32_t> prompt, ReplayMode replay, const FindTiers& find_tiers,
                              const FindReason& find_reason) {
  PrefixForecast forecast;
  const auto block = static_cast<size_t>(layout.block_size);
  const size_t reusable =
      prompt.empty() || !MayReuse(replay) ? 0 : (prompt.size() - 1) / block * block;
  if (reusable == 0) forecast.miss_reason = MissReasonName(MissReason::kTooShort);
  for (bool is_tried = false; forecast.blocks.size() * block < reusable;) {
    const size_t here = forecast.blocks.size() * block;
    const BlockHash parent = here == 0 ? root : forecast.blocks.back().hash;
    const auto rest = prompt.subspan(here, reusable - here);
    const Provenance next = is_tried ? Provenance{here} : forecast.provenance;
    if (AddFound(ChainBlocks(parent, next, rest, layout.block_size), find_tiers, &forecast)) {
      forecast.provenance = next;
      is_tried = false;
    } else if (is_tried || here == 0 || !MayReuseReplayed(replay)) {
      break;
    } else {
      is_tried = true;
    }
  }
  forecast.num_found = forecast.blocks.size();
  const size_t hit = forecast.num_found * block;
  if (hit < reusable) {
    const std::vector<BlockIdentity> missing =
        ChainBlocks(hit == 0 ? root : forecast.blocks.back().hash, forecast.provenance,
                    prompt.subspan(hit, reusable - hit), layout.block_size);
    forecast.blocks.insert(forecast.blocks.end(), missing.begin(), missing.end());
    forecast.miss_reason = find_reason(missing.front());
  }
  forecast.tiers = find_tiers(forecast.blocks);
  forecast.resume = PlanResume(layout, sliding_window, replay, static_cast<int64_t>(hit), false,
                               static_cast<int64_t>(prompt.size()));
  if (!forecast.resume.is_canonical || !forecast.provenance.is_canonical()) forecast.provenance = {hit};
  return forecast;
}

}  // namespace emberkv
