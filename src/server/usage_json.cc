#include "server/usage_json.h"

#include <fmt/format.h>

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

double Dollars(PicoDollars value) {
  return static_cast<double>(value) / static_cast<double>(kPicoDollarsPerDollar);
}

}  // namespace

Json UsageJson(const GenerationOutcome& outcome) {
  Json usage;
  usage["prompt_tokens"] = outcome.prompt_tokens;
  usage["completion_tokens"] = outcome.completion_tokens;
  usage["total_tokens"] = outcome.prompt_tokens + outcome.completion_tokens;
  usage["prompt_cache_hit_tokens"] = outcome.hit_tokens;
  usage["prompt_cache_miss_tokens"] = outcome.miss_tokens();
  usage["prompt_tokens_details"]["cached_tokens"] = outcome.hit_tokens;
  usage["completion_tokens_details"]["reasoning_tokens"] = outcome.reasoning_tokens;
  return usage;
}

Json TraceJson(const GenerationOutcome& outcome, const GenerationContext& context) {
  Json trace;
  trace["request_id"] = context.request_id;
  trace["hit_tokens"] = outcome.hit_tokens;
  trace["replayed_tokens"] = outcome.replayed_tokens;
  trace["computed_tokens"] = outcome.miss_tokens();
  trace["tiers"]["resident_blocks"] = outcome.resident_blocks;
  trace["tiers"]["store_blocks"] = outcome.store_blocks;
  trace["bytes_read"] = outcome.bytes_read;
  trace["provenance"] = outcome.replayed_at == 0 ? "canonical" : fmt::format("replayed@{}", outcome.replayed_at);
  trace["miss_reason"] = outcome.miss_reason.empty() ? Json() : Json(outcome.miss_reason);
  trace["queue_seconds"] = context.queue_seconds;
  trace["restore_seconds"] = outcome.restore_seconds;
  trace["ttft_seconds"] = outcome.ttft_seconds;
  trace["decode_seconds"] = outcome.decode_seconds;
  trace["total_seconds"] = outcome.total_seconds;
  Json& cost = trace["cost"];
  cost["prices"] = context.prices->name;
  cost["period"] = context.prices->IsPeak(outcome.arrived_us) ? "peak" : "off-peak";
  cost["with_cache_usd"] = Dollars(outcome.cost.with_cache);
  cost["without_cache_usd"] = Dollars(outcome.cost.without_cache);
  cost["saved_usd"] = Dollars(outcome.cost.without_cache - outcome.cost.with_cache);
  return trace;
}

}  // namespace emberkv
