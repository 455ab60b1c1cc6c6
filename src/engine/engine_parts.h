// What an Engine and its sessions share. Inside of the engine room only.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "cache/page_cache.h"
#include "engine/step_scheduler.h"
#include "engine/store_keeper.h"
#include "engine/tenant.h"
#include "layout/identity.h"
#include "model/model.h"
#include "store/local_store.h"
#include "tokenizer/tokenizer.h"
#include "window/window_pool.h"

namespace emberkv {

struct EngineParts {
  explicit EngineParts(int num_threads) : threads(num_threads) {}
  // Waits for what the store has begun, 30 s at most, and 1 s if it was given up before. What has not ended
  // by then goes on behind, if it can, until the process ends.
  ~EngineParts();

  // Constant once loaded.
  std::unique_ptr<const Model> model;
  std::optional<Tokenizer> tokenizer;
  IdentityFields identity;  // of this model, tokenizer and layout, for no tenant
  std::string tenant_secret;
  int64_t max_context = 0;
  int prefill_chunk = 0;
  int32_t num_token_ids = 0;  // ids that the model has, and Engram's token map too

  // Thread-safe. The store outlives the cache, the clock both.
  std::unique_ptr<SystemClock> clock = std::make_unique<SystemClock>();
  std::unique_ptr<LocalStore> store;  // null without a store
  std::unique_ptr<StoreKeeper> keeper;  // likewise
  std::unique_ptr<PageCache> cache;
  std::unique_ptr<WindowPool> windows;
  std::atomic<bool> has_given_up_disk = false;  // the last to wait for it did so in vain

  ThreadPool threads;  // of the scheduler
  std::unique_ptr<StepScheduler> scheduler;
};

}  // namespace emberkv
