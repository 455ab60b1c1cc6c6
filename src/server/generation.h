// One request for text: what the client asked for, checked; and running it on the engine with its answer sent
// as JSON or as a stream of events.
//
// A GenerationRequest is a plain value. RunGeneration blocks its thread until the answer is complete; any
// number may run at once, each on a thread of its own. It runs each answer on one more thread, so that those of
// a request share the model's steps. That thread also writes to the client what need not wait; what must is
// written by the caller's, so that a slow client holds up no computing. RunGeneration lets go of its sessions and
// threads before it returns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "ledger/price_table.h"

namespace emberkv {

class ReplyChannel;

enum class Endpoint { kChat, kCompletion };

struct GenerationRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::vector<std::vector<int32_t>> prompts;  // one for a chat
  int n = 1;                                  // answers to each prompt
  GenerateOptions options;                    // sampler, max_tokens, stop strings, log-probabilities
  ReplayMode replay = ReplayMode::kBounded;
  bool no_store = false;
  std::string cache_salt;  // of the client's salt and user, within the tenant
  bool streams = false;
  bool includes_usage = false;  // a last event of a stream tells the usage
  bool wants_trace = false;     // "emberkv": {"trace": true}
  bool is_thinking = false;     // a chat's answer begins with reasoning
  bool parses_tool_calls = false;
  int32_t think_end_token = -1;  // ends the reasoning
  int64_t max_context = 0;       // of a session: the engine's

  // Answers are numbered prompt by prompt.
  size_t num_answers() const { return prompts.size() * static_cast<size_t>(n); }
  int64_t prompt_tokens() const;

  // The most tokens that its sessions hold at once, for admission; and the most pages, which are rounded up for
  // each session.
  int64_t TokensNeeded() const;
  int64_t PagesNeeded(const MemoryPlan& plan) const;

 private:
  std::vector<int64_t> SessionSizes() const;  // of those that run at once, when they are largest
};

// The most answers of a request that run at once; others follow.
inline constexpr size_t kMaxParallelAnswers = 16;

// What a request is doing, for those who look at it from other threads.
struct GenerationProgress {
  enum class Phase { kQueued, kPrefill, kDecode, kDone };
  std::atomic<Phase> phase{Phase::kQueued};
  std::atomic<int64_t> prompt_tokens{0};
  std::atomic<int64_t> prefilled_tokens{0};
  std::atomic<int64_t> output_tokens{0};
};

// What comes with a request besides its body.
struct GenerationContext {
  std::string request_id;  // "req-..."; answers carry it
  std::string model_name;  // as the server calls its model
  std::string tenant;      // the authenticated name; "" for the local user
  StoreLimits limits{};    // what the tenant may keep in the store
  std::chrono::steady_clock::time_point arrived;
  double queue_seconds = 0;               // from arrival to admission
  const PriceTable* prices = nullptr;     // not null
  GenerationProgress* progress = nullptr; // not null
  const std::atomic<bool>* stop = nullptr;  // the server ends: finish with what there is; may be null
};

// What a request came to: one line of the ledger. Sums over all prompts and answers; hit + miss = prompt.
// A prompt counts once, whatever n, and from the moment it is prefilled: a request that fails before has
// none. Of its n answers the one that found least in the caches tells its hit, as the others found what
// that one computed.
struct GenerationOutcome {
  int http_status = 200;           // 499: the client went away
  std::string finish_reason;       // of the first answer; "error" when it failed
  std::string error;               // what went wrong, for the log
  int64_t prompt_tokens = 0;
  int64_t hit_tokens = 0;
  int64_t replayed_tokens = 0;     // of the hit
  int64_t completion_tokens = 0;   // EOS included
  int64_t reasoning_tokens = 0;    // of these, </think> included
  int64_t resident_blocks = 0;
  int64_t store_blocks = 0;
  uint64_t bytes_read = 0;
  double restore_seconds = 0;
  double ttft_seconds = 0;         // from arrival to the first token
  double decode_seconds = 0;       // from the first token to the last
  double total_seconds = 0;        // from arrival to the end of the answer
  uint64_t replayed_at = 0;
  std::string miss_reason;         // of the first prompt that has one
  int64_t arrived_us = 0;          // wall time
  Cost cost;                       // at the price of that time

  int64_t miss_tokens() const { return prompt_tokens - hit_tokens; }
};

// Runs the request and answers on `channel`, errors too.
GenerationOutcome RunGeneration(const GenerationRequest& request, const GenerationContext& context,
                                const Engine& engine, ReplyChannel* channel);

}  // namespace emberkv
