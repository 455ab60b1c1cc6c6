// What commands that run a model have in common: the options that say which and how, loading it
// with progress, and turning a text into the ids of a new sequence.
//
// Used by the command's one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/progress_line.h"
#include "engine/engine.h"

namespace emberkv {

struct ModelOptions {
  EngineOptions engine;
  ReplayMode replay = ReplayMode::kBounded;
};

// `options` must outlive the parse.
void AddModelOptions(CLI::App& command, ModelOptions* options);

void AddWeightMemoryOption(CLI::App& command, EngineOptions* engine);

// --store, --store-size, --retention; --window-memory, --window-ttl.
void AddCacheOptions(CLI::App& command, EngineOptions* engine);

// "packed, 12.00 GiB of 12.00 GiB kept"; of streamed experts also how many uses had to read.
std::string ExpertsText(const ExpertStats& experts);

Result<std::unique_ptr<Engine>> LoadWithProgress(const ModelOptions& options,
                                                 ProgressLine* progress);

// Prefills with tokens/s and time left on the progress line.
Status PrefillWithProgress(Session& session, const std::vector<int32_t>& tokens, ReplayMode replay,
                           const std::atomic<bool>* cancel, ProgressLine* progress);

// The ids of a text that begins a sequence: the BOS token goes first unless the text has it.
// `model` is an Engine or a PrefixProbe.
template <class Model>
Result<std::vector<int32_t>> EncodeFirst(const Model& model, std::string_view text) {
  EMBERKV_ASSIGN_OR_RETURN(std::vector<int32_t> ids, model.Encode(text));
  const int32_t bos = model.config().bos_token_id;
  if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
  return ids;
}

}  // namespace emberkv
