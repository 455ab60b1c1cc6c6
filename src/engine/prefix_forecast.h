// What a prompt would find in the caches, without taking it.
//
// A plain value and a function of the caches' state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/block_identity.h"
#include "cache/page_cache.h"
#include "engine/replay.h"
#include "engine/resume.h"
#include "layout/cache_layout.h"
#include "layout/identity.h"

namespace emberkv {

struct PrefixForecast {
  // The prompt's full blocks that may be hits: those that the run would find, then the others as
  // their chain would go on. They view the prompt.
  std::vector<BlockIdentity> blocks;
  // Where each block is, none where it is nowhere; one behind a block that is missing is no use.
  std::vector<std::optional<CacheTier>> tiers;
  size_t num_found = 0;  // blocks that the run would find
  // Why the next block is not there, in MissReasonName's words; empty when none is missing.
  std::string_view miss_reason;
  ResumePlan resume;     // supposing that the windows are lost
  Provenance provenance;  // of the blocks that the run would compute
};

// Where blocks are.
using FindTiers = std::function<std::vector<std::optional<CacheTier>>(std::span<const BlockIdentity>)>;

// Why a block is not there.
using FindReason = std::function<std::string_view(const BlockIdentity&)>;

// The walk of FindPrefix (engine/prefix_match.h), asking only whether pages are there. `root`: the tenant's.
PrefixForecast ForecastPrefix(const CacheLayout& layout, int sliding_window, const BlockHash& root,
                              std::span<const int32_t> prompt, ReplayMode replay, const FindTiers& find_tiers,
                              const FindReason& find_reason);

}  // namespace emberkv
