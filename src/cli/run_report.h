// What `emberkv run` tells about answers and costs, as text for people and as JSON lines for
// scripts.
//
// Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace emberkv {

struct AnswerReport {
  int index = 0;  // of the prompt
  std::string prompt;
  std::string text;
  int64_t prompt_tokens = 0;  // documents and BOS included where they go with it
  int64_t output_tokens = 0;
  double ttft_seconds = 0;  // from the prompt to its first output token
  FinishReason finish_reason = FinishReason::kCancelled;
};

struct RunSummary {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double ttft_seconds = 0;  // of the first prompt, documents included
  int64_t first_prompt_tokens = 0;
  SessionStats session;
  PagePoolStats pool;
  EngineCacheStats caches;
  size_t weight_bytes = 0;
  ExpertStats experts;
  int threads = 0;
  std::string isa;
};

std::string AnswerJson(const AnswerReport& answer);  // one line
std::string SummaryJson(const RunSummary& summary);  // one line
std::string SummaryText(const RunSummary& summary);  // an aligned table

}  // namespace emberkv
