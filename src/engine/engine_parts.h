// What an Engine and its sessions share. Inside of the engine room only.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "base/thread_pool.h"
#include "cache/page_pool.h"
#include "model/model.h"
#include "model/step.h"
#include "tokenizer/tokenizer.h"

namespace emberkv {

struct EngineParts {
  explicit EngineParts(int num_threads) : threads(num_threads), step(&threads) {}

  // Constant once loaded.
  std::unique_ptr<const Model> model;
  std::unique_ptr<PagePool> pool;
  std::optional<Tokenizer> tokenizer;
  int64_t max_context = 0;
  int prefill_chunk = 0;
  int32_t num_token_ids = 0;  // ids that the model has, and Engram's token map too

  // Whoever holds step_mutex is the model thread.
  std::mutex step_mutex;
  ThreadPool threads;  // used under step_mutex
  Step step;           // guarded by step_mutex
};

}  // namespace emberkv
