// Log-probabilities of an answer's tokens, in the shapes of the two endpoints.
//
// Pure functions of their arguments, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/engine.h"

namespace emberkv {

struct ReportedToken {
  SampledToken sampled;
  bool is_reasoning = false;
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "reasoning_content": [...]}; a list without tokens is
// null. `bytes` is null for a token that spells a part of a character.
nlohmann::ordered_json ChatLogprobs(const Engine& engine, std::span<const ReportedToken> tokens);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. *offset: characters of the answer before these
// tokens, and then behind them.
nlohmann::ordered_json CompletionLogprobs(const Engine& engine, std::span<const ReportedToken> tokens,
                                          int64_t* offset);

}  // namespace emberkv
