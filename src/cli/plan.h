// What `emberkv plan` shows: the layout of a config and its budgets, as values, as text for people
// and as JSON for programs. Both forms are made from the same Plan.
//
// Plain values and pure functions; MakePlan reads the config file, nothing else does I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "layout/budget.h"
#include "layout/cache_layout.h"
#include "layout/model_config.h"

namespace emberkv {

struct PlanRequest {
  std::string config_path;               // config.json or the folder that holds it
  std::optional<int64_t> context;        // tokens of a session; by default the longest allowed
  std::optional<int64_t> sessions;       // how many are wanted
  std::optional<uint64_t> device_bytes;  // set aside for the cache in each tier
  std::optional<uint64_t> host_bytes;
  std::optional<uint64_t> ssd_bytes;
  double tokens_per_second = 10000;  // new tokens that the SSD is to keep
};

struct TierPlan {
  Tier tier = Tier::kDevice;
  const char* name = "";
  uint64_t session_bytes = 0;              // one session of the wanted context
  std::optional<uint64_t> size_bytes;      // as asked for
  TierFit fit;                             // when size_bytes is set
  std::optional<uint64_t> sessions_bytes;  // of all wanted sessions
};

struct DecodeCost {
  int64_t tokens = 0;
  std::vector<OperationTerm> terms;
};

struct Plan {
  std::string config_path;
  ModelConfig config;
  CacheLayout layout;
  int64_t context = 0;
  std::optional<int64_t> sessions;
  std::vector<SessionMemory> memory;  // ascending contexts
  std::vector<TierPlan> tiers;        // device, host, SSD
  double tokens_per_second = 0;
  double retained_bytes = 0;            // of kRetentionHours
  DecodeCost decode_short;              // at 4K tokens, or the context where that is less
  DecodeCost decode_long;               // at the context
  TokenLayers prefill;                  // of the context
  std::vector<Generation> generations;  // oldest first; the config's own is last
};

// Retention that the service promises by default (docs/architecture.md 6).
inline constexpr double kRetentionHours = 72;

Result<Plan> MakePlan(const PlanRequest& request);

std::string PlanText(const Plan& plan);
std::string PlanJson(const Plan& plan);

// How this config compares with earlier generations; what each counts is in docs/plan.md.
struct GenerationRatios {
  double kv_of_v1 = 0;      // V1's bytes per token over this config's
  double kv_of_v4 = 0;      // V4-Flash's global KV over this config's
  double stored_of_v4 = 0;  // what V4-Flash's SSD kept over what this config's keeps
};

GenerationRatios RatiosOf(const Plan& plan);

}  // namespace emberkv
