// What an Engine and its sessions share. Inside of the engine room only.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "cache/page_cache.h"
#include "engine/store_keeper.h"
#include "layout/identity.h"
#include "model/model.h"
#include "model/step.h"
#include "store/local_store.h"
#include "tokenizer/tokenizer.h"
#include "window/window_pool.h"

namespace emberkv {

struct EngineParts {
  explicit EngineParts(int num_threads) : threads(num_threads), step(&threads) {}

  // Constant once loaded.
  std::unique_ptr<const Model> model;
  std::optional<Tokenizer> tokenizer;
  Digest key_root;  // of this model, tokenizer and layout
  Digest tenant;    // zero: one user
  int64_t max_context = 0;
  int prefill_chunk = 0;
  int32_t num_token_ids = 0;  // ids that the model has, and Engram's token map too

  // Thread-safe. The store outlives the cache, the clock both.
  SystemClock clock;
  std::unique_ptr<LocalStore> store;  // null without a store
  std::unique_ptr<StoreKeeper> keeper;  // likewise
  std::unique_ptr<PageCache> cache;
  std::unique_ptr<WindowPool> windows;

  // Whoever holds step_mutex is the model thread.
  std::mutex step_mutex;
  ThreadPool threads;  // used under step_mutex
  Step step;           // guarded by step_mutex
};

}  // namespace emberkv
