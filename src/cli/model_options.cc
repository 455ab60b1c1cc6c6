#include "cli/model_options.h"

#include <fmt/format.h>

#include <chrono>

#include "base/duration.h"
#include "cli/parsed_option.h"
#include "cli/quantity.h"

namespace emberkv {

void AddWeightMemoryOption(CLI::App& command, EngineOptions* engine) {
  AddParsedOption(command, "--weight-memory", &engine->weight_memory_bytes, &ParseBytes,
                  "Most memory of weights; experts that do not fit are read when they are used\n"
                  "(default: what the machine has beside page pool, windows and a reserve)");
}

void AddCacheOptions(CLI::App& command, EngineOptions* engine) {
  command.add_option("--store", engine->store_dir, "Directory to keep global KV in; made if it is not there");
  AddParsedOption(command, "--store-size", &engine->store_budget_bytes, &ParseBytes,
                  "Most disk space of the store (default: 16G)");
  AddParsedOption(command, "--retention", &engine->store_retention, &ParseDuration,
                  "How long a page is promised after its last use (default: 72h)");
  AddParsedOption(command, "--window-memory", &engine->window_budget_bytes, &ParseBytes,
                  "Memory for encoder windows (default: a tenth of the machine's)");
  AddParsedOption(command, "--window-ttl", &engine->window_ttl, &ParseDuration,
                  "How long windows are kept after their last use (default: 5m)");
}

std::string ExpertsText(const ExpertStats& experts) {
  const std::string share = fmt::format("{} of {} kept", BinarySize(experts.kept_bytes),
                                        BinarySize(experts.total_bytes));
  if (!experts.is_streamed) return "packed, " + share;
  return fmt::format("streamed, {}; {} of {} uses were read", share, Grouped(experts.reads),
                     Grouped(experts.uses));
}

void AddModelOptions(CLI::App& command, ModelOptions* options) {
  command.add_option("--model", options->engine.model_dir, "Folder of the model")->required();
  AddParsedOption(command, "--replay", &options->replay, &ParseReplayMode,
                  "Decoder replay of prompts: bounded (default), exact or full");
  command.add_option("--threads", options->engine.num_threads, "Threads (default: all cores)");
  AddParsedOption(command, "--kv-memory", &options->engine.kv_budget_bytes, &ParseBytes,
                  "Page pool for global KV, e.g. 4G (default: half of what is free beside the weights)");
  AddWeightMemoryOption(command, &options->engine);
  command.add_option("--chunk", options->engine.prefill_chunk, "Tokens of one prefill step")
      ->capture_default_str();
}

Result<std::unique_ptr<Engine>> LoadWithProgress(const ModelOptions& options,
                                                 ProgressLine* progress) {
  auto engine = Engine::Load(options.engine, [progress](double fraction) {
    progress->Show(fmt::format("loading {:.0f} %", 100 * fraction));
  });
  progress->Clear();
  return engine;
}

Status PrefillWithProgress(Session& session, const std::vector<int32_t>& tokens, ReplayMode replay,
                           const std::atomic<bool>* cancel, ProgressLine* progress) {
  const auto start = std::chrono::steady_clock::now();
  PrefillOptions options;
  options.replay = replay;
  options.cancel = cancel;
  options.progress = [&](int64_t done, int64_t total) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double rate = static_cast<double>(done) / seconds;
    progress->Show(fmt::format("prefill {} of {} tokens  {:.0f} tokens/s  {} left",
                               Grouped(static_cast<uint64_t>(done)),
                               Grouped(static_cast<uint64_t>(total)), rate,
                               Duration(static_cast<double>(total - done) / rate)));
  };
  const Status status = session.Prefill(tokens, options);
  progress->Clear();
  return status;
}

}  // namespace emberkv
