// One conversation with the model: its tokens, its caches, and what it has cost.
//
// Made by Engine::OpenSession. A session is used by one thread at a time; sessions on different
// threads share the model's steps and do not change each other's results. It owns its windows and tails
// and pins its pages; it keeps the model alive and may outlive its Engine.
//
// Its tokens are those prefilled and those sampled, in order. All are in the caches but for one at
// most: the token sampled last, which the next step computes first.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/block_table.h"
#include "engine/prefix_match.h"
#include "engine/replay.h"
#include "engine/resume.h"
#include "engine/sampled_token.h"
#include "engine/sampler.h"
#include "engine/step_scheduler.h"
#include "engine/stop.h"
#include "engine/tenant.h"
#include "model/sequence_state.h"
#include "store/kv_store.h"
#include "tokenizer/tokenizer.h"
#include "window/window_pool.h"

namespace emberkv {

struct EngineParts;

struct SessionOptions {
  int64_t max_context = 0;     // tokens; 0: the engine's
  bool reuses_prefixes = true; // look the first prompt's beginning up in the caches
  bool no_store = false;       // leave nothing behind on any tier
  TenantName tenant;           // whose caches it reads and fills
  StoreLimits limits{};        // what the tenant may keep in the store
};

struct PrefillOptions {
  ReplayMode replay = ReplayMode::kBounded;
  std::function<void(int64_t done, int64_t total)> progress;  // tokens of this call, after each chunk
  const std::atomic<bool>* cancel = nullptr;                  // looked at before each chunk
};

enum class FinishReason {
  kEos,
  kStop,       // a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,
};

const char* FinishReasonName(FinishReason reason);  // "eos", "stop", "length", "cancelled"

struct GenerateOptions {
  SamplerOptions sampler;
  int64_t max_tokens = 256;
  std::vector<std::string> stop_strings;  // need a tokenizer
  bool stops_at_eos = true;
  std::optional<int> top_logprobs;  // give tokens their log-probability and so many of the likeliest beside it
  std::function<void(const SampledToken&)> on_token;  // each token, before the text it makes certain
  std::function<void(std::string_view text)> on_text;  // pieces of Generation::text as they are certain
  const std::atomic<bool>* cancel = nullptr;           // looked at before each token
};

struct Generation {
  std::vector<int32_t> tokens;  // EOS included when it was produced
  std::string text;             // without EOS, and without the stop string and what follows it
  FinishReason finish_reason = FinishReason::kLength;
  double first_token_seconds = 0;  // from the call to the first token; 0 without one
};

// What a session's first prompt took from the caches.
struct ReuseStats {
  int64_t hit_tokens = 0;       // global rows that were there
  int64_t replayed_tokens = 0;  // of these, run again to rebuild windows
  int64_t resident_blocks = 0;  // of the hit: found in memory
  int64_t store_blocks = 0;     // read from the store
  size_t bytes_read = 0;
  double restore_seconds = 0;   // looking up and reading
  bool from_checkpoint = false;  // the encoder windows at the hit were alive
  uint64_t replayed_at = 0;     // provenance of what was computed: 0 is canonical
  std::string_view miss_reason;  // why the first missing block was not there; empty: nothing was looked up
};

struct SessionStats {
  int64_t tokens = 0;           // held, the one not yet computed included
  int64_t computed_tokens = 0;  // in the caches

  // Measured from the pages that the session pins.
  int64_t pages = 0;
  size_t kv_bytes = 0;         // pages x page bytes
  size_t filled_kv_bytes = 0;  // rows written within them
  double kv_bytes_per_token() const;
  double filled_kv_bytes_per_token() const;

  size_t window_bytes = 0;  // whatever the length
  size_t tail_bytes = 0;

  int64_t token_layers = 0;       // rows x layers computed
  int64_t full_token_layers = 0;  // what the same tokens cost with every row in every layer
  double token_layer_share() const;

  int64_t prefill_tokens = 0;  // computed by Prefill, replayed ones included; hits are not
  int64_t decode_tokens = 0;  // steps of Generate
  double prefill_seconds = 0;
  double decode_seconds = 0;

  ReplayMode replay = ReplayMode::kBounded;  // of the last prefill
  std::string replay_note;                   // ReplayPlan::note of the last prefill

  ReuseStats reuse;
};

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Appends `tokens` and computes them in chunks; a token that Generate sampled last goes before them.
  // A session's first prompt takes from the caches what they hold of its beginning.
  // Refused, and the session unchanged: no tokens, ids the model does not have, more than the context
  // holds, no pages left. kCancelled: the chunks that were complete stay (none while a hit is being
  // replayed), the rest of `tokens` is forgotten, and a later Prefill continues from there. Any other failure is of the model or its
  // files and leaves the session unusable: every later call returns it.
  Status Prefill(std::span<const int32_t> tokens, const PrefillOptions& options = {});

  // Samples an answer after a Prefill that ran to its end; one answer per Prefill. Every token it
  // samples, EOS too, is one of the session's. When the pool has no page for the next token the call
  // is refused; tokens() keeps what was sampled.
  Result<Generation> Generate(const GenerateOptions& options = {});

  const std::vector<int32_t>& tokens() const { return tokens_; }
  SessionStats stats() const;

  // The caches' bytes as the model reads them, for tests and tools.
  std::span<const float> logits() const { return logits_; }  // empty unless Generate may be called
  std::span<const uint8_t> page(size_t block) const;
  std::span<const uint8_t> windows() const { return windows_; }
  std::span<const float> tails() const { return tails_; }
  const SequenceState& state() const { return state_; }

 private:
  friend class Engine;
  struct Answer;
  Session(std::shared_ptr<EngineParts> parts, const SessionOptions& options);

  Status CheckPrefill(std::span<const int32_t> tokens) const;
  Status ReusePrefix(std::span<const int32_t> prompt, const PrefillOptions& options,
                     ComputeClaim* claim);
  void Resume(const ResumePlan& plan, PrefixMatch match);
  void FinishReplay();
  void StartOver();
  ReplayPlan PlanOf(const PrefillOptions& options, int64_t total) const;
  Status RunPlan(const ReplayPlan& plan, const PrefillOptions& options);
  int64_t NextStop(int64_t end) const;
  Status Advance(int64_t end, bool wants_logits);
  void SealBlocks();
  void KeepBoundary();
  void PublishBoundary();
  Status RunStep(int64_t end, bool wants_logits);
  Status ComputeSampledToken();
  Status SampleInto(const GenerateOptions& options, Answer* answer);
  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size()); }

  const std::shared_ptr<EngineParts> parts_;
  const SessionOptions options_;
  const Digest key_root_;  // of the tenant
  const Digest tenant_;    // its mark
  StepSeat seat_;

  std::vector<int32_t> tokens_;
  int64_t computed_ = 0;  // tokens_[0, computed_) are in the caches
  BlockTable table_;
  std::vector<uint8_t> windows_;
  std::vector<float> tails_;
  SequenceState state_;
  std::vector<float> logits_;  // of the last token, until it is used
  Status broken_;              // not OK: the caches cannot be trusted any more

  // The blocks as the caches know them: hashes of the full blocks in the table, all of them shared.
  std::vector<BlockHash> chain_;
  Provenance provenance_;  // of blocks sealed from now on
  std::optional<ResumePlan> resume_;  // of the first prompt, while its rows below the hit run again
  std::shared_ptr<const WindowCheckpoint> checkpoint_;  // to be restored when the replay is done
  std::optional<WindowCheckpoint> boundary_;  // encoder windows at the end of the last block sealed
  BlockHash boundary_hash_;                   // that block
  ReuseStats reuse_;

  // Counters of stats().
  int64_t token_layers_ = 0;
  int64_t prefill_tokens_ = 0;
  int64_t decode_tokens_ = 0;
  double prefill_seconds_ = 0;
  double decode_seconds_ = 0;
  ReplayMode replay_ = ReplayMode::kBounded;
  std::string replay_note_;
};

}  // namespace emberkv
