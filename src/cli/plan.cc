#include "cli/plan.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "fmt/format.h"

namespace emberkv {
namespace {

constexpr int64_t kShortContext = 4096;

// 4K, 16K, 64K ... as far as the model goes, and the one asked for.
std::vector<int64_t> ContextsToShow(int64_t context, int64_t longest) {
  std::vector<int64_t> contexts = {context, longest};
  for (int64_t tokens = kShortContext; tokens < longest; tokens *= 4) contexts.push_back(tokens);
  std::sort(contexts.begin(), contexts.end());
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  return contexts;
}

Result<TierPlan> PlanTier(const CacheLayout& layout, const PlanRequest& request, int64_t context,
                          Tier tier, const char* name, std::optional<uint64_t> size) {
  TierPlan plan;
  plan.tier = tier;
  plan.name = name;
  plan.session_bytes = SessionBytes(MemoryOfSession(layout, context), tier);
  plan.size_bytes = size;
  if (size) plan.fit = FitTier(layout, tier, *size, context);
  if (request.sessions) {
    const auto sessions = static_cast<uint64_t>(*request.sessions);
    if (sessions > std::numeric_limits<uint64_t>::max() / plan.session_bytes) {
      return InvalidArgument(
          fmt::format("--sessions is {}; allowed: as many as 2^64 bytes can hold", sessions));
    }
    plan.sessions_bytes = sessions * plan.session_bytes;
  }
  return plan;
}

Status CheckRequest(const PlanRequest& request, const ModelConfig& config) {
  const int64_t context = request.context.value_or(config.max_position_embeddings);
  if (context < 1 || context > config.max_position_embeddings) {
    return InvalidArgument(
        fmt::format("--context is {}; allowed: 1 to {}, the config's "
                    "max_position_embeddings",
                    context, config.max_position_embeddings));
  }
  if (request.sessions && *request.sessions < 1) {
    return InvalidArgument(fmt::format("--sessions is {}; allowed: at least 1", *request.sessions));
  }
  constexpr double kMaxRate = 1e12;
  if (!(request.tokens_per_second >= 0 && request.tokens_per_second <= kMaxRate)) {
    return InvalidArgument(fmt::format("--tokens-per-second is {}; allowed: 0 to {}",
                                       request.tokens_per_second, kMaxRate));
  }
  return Status::Ok();
}

}  // namespace

Result<Plan> MakePlan(const PlanRequest& request) {
  Plan plan;
  plan.config_path = request.config_path;
  EMBERKV_ASSIGN_OR_RETURN(plan.config, LoadModelConfig(request.config_path));
  Result<CacheLayout> layout = MakeCacheLayout(plan.config);
  if (!layout.ok()) return layout.status().WithContext(request.config_path);
  plan.layout = std::move(layout).value();
  EMBERKV_RETURN_IF_ERROR(CheckRequest(request, plan.config));

  plan.context = request.context.value_or(plan.config.max_position_embeddings);
  plan.sessions = request.sessions;
  for (int64_t tokens : ContextsToShow(plan.context, plan.config.max_position_embeddings)) {
    plan.memory.push_back(MemoryOfSession(plan.layout, tokens));
  }
  const std::tuple<Tier, const char*, std::optional<uint64_t>> tiers[] = {
      {Tier::kDevice, "device", request.device_bytes},
      {Tier::kHost, "host", request.host_bytes},
      {Tier::kSsd, "SSD", request.ssd_bytes}};
  for (const auto& [tier, name, size] : tiers) {
    EMBERKV_ASSIGN_OR_RETURN(TierPlan tier_plan,
                             PlanTier(plan.layout, request, plan.context, tier, name, size));
    plan.tiers.push_back(tier_plan);
  }
  plan.tokens_per_second = request.tokens_per_second;
  plan.retained_bytes = RetainedBytes(plan.layout, plan.tokens_per_second, kRetentionHours);

  const int64_t short_context = std::min(kShortContext, plan.context);
  plan.decode_short = {short_context, DecodeOperations(plan.config, plan.layout, short_context)};
  plan.decode_long = {plan.context, DecodeOperations(plan.config, plan.layout, plan.context)};
  plan.prefill = PrefillTokenLayers(plan.config, plan.layout, plan.context);
  plan.generations = {GenerationV1(), GenerationV32(), GenerationV4Flash(),
                      GenerationOf(plan.config, plan.layout)};
  return plan;
}

GenerationRatios RatiosOf(const Plan& plan) {
  const double ours = plan.layout.bytes_per_token();
  const double v4 = GenerationV4Flash().bytes_per_token();
  return {GenerationV1().bytes_per_token() / ours, v4 / ours, v4 * kV4StoredPerGlobalByte / ours};
}

}  // namespace emberkv
