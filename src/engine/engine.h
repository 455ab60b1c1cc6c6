// The engine: a loaded model, its tokenizer and its page pool. The one door for server, cli and
// python; they include nothing else of this room or below.
//
// Immutable after Load: any thread may use it and open sessions. Sessions share ownership of what
// they need, so the order in which engine and sessions end does not matter.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/block_identity.h"
#include "cache/page_cache.h"
#include "engine/prefix_forecast.h"
#include "engine/replay.h"
#include "engine/resume.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/step_scheduler.h"
#include "layout/cache_layout.h"
#include "layout/identity.h"
#include "layout/model_config.h"
#include "model/expert_stats.h"
#include "store/kv_store.h"
#include "tokenizer/tokenizer.h"
#include "window/window_pool.h"

namespace emberkv {

struct EngineOptions {
  std::string model_dir;
  int num_threads = 0;                    // 0: as many as the machine has
  std::optional<size_t> kv_budget_bytes;  // of the page pool; else a share of free memory
  // Most memory of weights: routed experts are packed where they fit, else read when they are used. By
  // default what the machine has beside page pool, windows, scratch and a reserve.
  std::optional<uint64_t> weight_memory_bytes;
  int64_t max_context = 0;                // tokens of a session; 0: max_position_embeddings
  int prefill_chunk = 512;                // tokens of one step, of all sessions together

  // The durable tier; none when the directory is empty.
  std::string store_dir;
  uint64_t store_budget_bytes = uint64_t{16} << 30;  // of disk
  std::chrono::microseconds store_retention = std::chrono::hours(72);

  std::optional<size_t> window_budget_bytes;  // of encoder window checkpoints; else 10 % of memory
  std::chrono::microseconds window_ttl = std::chrono::minutes(5);
};

// What the engine's caches hold and did.
struct EngineCacheStats {
  PageCacheStats pages;
  WindowPoolStats windows;
  std::optional<StoreStats> store;  // none without a store
};

// What memory the engine needs at most, and what one more session takes.
struct MemoryPlan {
  uint64_t weight_bytes = 0;
  uint64_t expert_bytes = 0;    // of weight_bytes: routed experts, packed or kept of what is streamed
  uint64_t page_bytes = 0;      // all of the page pool
  uint64_t window_pool_bytes = 0;
  uint64_t scratch_bytes = 0;   // of a full step
  uint64_t session_bytes = 0;   // windows and tails of one session; its pages come from the pool
  int64_t pool_pages = 0;
  int block_size = 0;           // tokens of a page

  int64_t PagesOf(int64_t tokens) const { return (tokens + block_size - 1) / block_size; }
};

class Engine {
 public:
  // Checks options, config and checkpoint, and packs the weights. `progress`, when set, is called
  // with the fraction done, from any thread, one call at a time. A folder without tokenizer.json loads: it
  // runs on token ids.
  static Result<std::unique_ptr<Engine>> Load(const EngineOptions& options,
                                              const std::function<void(double)>& progress = {});
  // The last of engine and sessions waits for what the store has begun to write, 30 s at most, 1 s after a
  // Flush that failed, and drops what still waits: Flush first to keep it. A disk that hangs longer is left
  // alone.
  ~Engine();

  Result<std::unique_ptr<Session>> OpenSession(const SessionOptions& options = {}) const;

  const ModelConfig& config() const;
  const CacheLayout& layout() const;
  size_t weight_bytes() const;  // resident now
  ExpertStats expert_stats() const;
  PagePoolStats pool_stats() const;
  EngineCacheStats cache_stats() const;
  StepSchedulerStats scheduler_stats() const;
  MemoryPlan memory_plan() const;

  // What a session of `tenant` would take of `prompt` from the caches now. Extends no deadline.
  PrefixForecast Forecast(const TenantName& tenant, std::span<const int32_t> prompt, ReplayMode replay) const;

  // Makes the tenant's pages unreadable on every tier; its running sessions keep what they hold and may
  // store what they compute from here on. Returns the pages that left the store. Fails when the index cannot
  // be written, or a write of the store has not ended within `timeout`.
  Result<uint64_t> EraseTenant(const std::string& name, std::chrono::milliseconds timeout) const;

  // What the tenant has in the store; nothing without one.
  TenantSum StoredBy(const std::string& name) const;

  // Waits until all complete blocks are durable or refused, or `timeout` has passed. True when they are;
  // also without a store.
  bool Flush(std::chrono::milliseconds timeout) const;

  int64_t max_context() const;
  int num_threads() const;
  const char* isa_name() const;  // the instruction set that kernels run on

  bool has_tokenizer() const;
  // Text to ids and back, special tokens included in both. Encode is refused without a tokenizer;
  // Decode then gives "".
  Result<std::vector<int32_t>> Encode(std::string_view text) const;
  std::string Decode(std::span<const int32_t> tokens) const;

 private:
  explicit Engine(std::shared_ptr<EngineParts> parts);

  const std::shared_ptr<EngineParts> parts_;
};

// A model without its weights: enough to tell what a store holds of a text. Immutable after Open;
// any thread may use it.
class PrefixProbe {
 public:
  static Result<PrefixProbe> Open(const std::string& model_dir);

  const ModelConfig& config() const { return config_; }
  const CacheLayout& layout() const { return layout_; }
  const Digest& key_root() const { return key_root_; }

  // As the engine's.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;
  std::string Decode(std::span<const int32_t> tokens) const;

  // Reads no page and extends no deadline. A page that is stored but corrupt counts as found: only
  // reading tells.
  PrefixForecast Forecast(KvStore* store, std::span<const int32_t> prompt, ReplayMode replay) const;

 private:
  PrefixProbe(ModelConfig config, CacheLayout layout, std::optional<Tokenizer> tokenizer,
              const Digest& key_root);

  ModelConfig config_;
  CacheLayout layout_;
  std::optional<Tokenizer> tokenizer_;
  Digest key_root_;
};

}  // namespace emberkv
