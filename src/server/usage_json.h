// What a request used and what the cache saved, as its answer tells it: `usage` and the trace.
//
// Pure functions of their arguments, any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "server/generation.h"

namespace emberkv {

// prompt_tokens = prompt_cache_hit_tokens + prompt_cache_miss_tokens, and so on.
nlohmann::ordered_json UsageJson(const GenerationOutcome& outcome);

// Of a request with "emberkv": {"trace": true}.
nlohmann::ordered_json TraceJson(const GenerationOutcome& outcome, const GenerationContext& context);

}  // namespace emberkv
