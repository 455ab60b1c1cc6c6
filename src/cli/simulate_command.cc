#include "cli/simulate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/duration.h"
#include "cli/parsed_option.h"
#include "cli/progress_line.h"
#include "cli/quantity.h"
#include "cli/text_table.h"
#include "layout/cache_layout.h"
#include "layout/model_config.h"
#include "ledger/price_table.h"
#include "ledger/trace_line.h"
#include "ledger/trace_simulation.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNotes =
    "A trace is what a server records with --trace-file, or one of Mooncake's open traces; the "
    "form "
    "and\n"
    "what is simulated are described in docs/ledger.md. Costs take the trace's times as UTC.\n"
    "Sizes: K, M, G, T are powers of 1024; KB, MB, GB, TB powers of 1000.\n"
    "Example:\n"
    "  emberkv simulate --trace trace.jsonl --model MODEL_DIR --memory 64G --store-size 1T "
    "--store-size 4T";

// What all runs have in common.
struct Replayed {
  int64_t block_size = 0;
  uint64_t page_bytes = 0;
  int64_t begin_us = 0;
  int64_t end_us = 0;
  uint64_t torn_lines = 0;
  std::vector<TraceSimulation> runs;

  double span_s() const { return static_cast<double>(end_us - begin_us) / 1e6; }
};

Result<uint64_t> PageBytes(const SimulateOptions& options, int64_t block_size) {
  if (options.model.empty() == (options.page_bytes == 0)) {
    return InvalidArgument(
        "the size of a page is not known; allowed: either --model or "
        "--page-bytes");
  }
  if (options.page_bytes > 0) return options.page_bytes;
  EMBERKV_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(options.model));
  Result<CacheLayout> layout = MakeCacheLayout(config, static_cast<int>(block_size));
  if (!layout.ok()) return layout.status().WithContext(options.model);
  return uint64_t{layout->page_bytes};
}

Status StartRuns(const SimulateOptions& options, const PriceTable& prices, const TraceLine& first,
                 Replayed* replayed) {
  EMBERKV_ASSIGN_OR_RETURN(replayed->page_bytes, PageBytes(options, first.block_size));
  replayed->block_size = first.block_size;
  replayed->begin_us = first.time_us;
  for (const uint64_t store_bytes : options.store_bytes) {
    replayed->runs.emplace_back(SimulatedMachine{.page_bytes = replayed->page_bytes,
                                                 .memory_bytes = options.memory_bytes,
                                                 .store_bytes = store_bytes,
                                                 .retention_us = options.retention.count()},
                                &prices);
  }
  return Status::Ok();
}

Result<Replayed> Replay(const SimulateOptions& options, const PriceTable& prices,
                        const std::function<void(const std::string&)>& progress) {
  constexpr int64_t kRequestsPerReport = 4096;
  EMBERKV_ASSIGN_OR_RETURN(TraceReader trace, TraceReader::Open(options.trace));
  Replayed replayed;
  TraceLine line;
  for (int64_t requests = 0;; ++requests) {
    EMBERKV_ASSIGN_OR_RETURN(const bool has_line, trace.Next(&line));
    if (!has_line) break;
    if (requests == 0) EMBERKV_RETURN_IF_ERROR(StartRuns(options, prices, line, &replayed));
    for (TraceSimulation& run : replayed.runs) {
      const Status status = run.Run(line);
      if (!status.ok()) return trace.AtLine(status);
    }
    replayed.begin_us = std::min(replayed.begin_us, line.time_us);
    replayed.end_us = std::max(replayed.end_us, line.time_us);
    if (progress && requests % kRequestsPerReport == 0) {
      progress(fmt::format("{} requests, {} of {}", Grouped(static_cast<uint64_t>(requests)),
                           BinarySize(trace.file().bytes_read()),
                           BinarySize(trace.file().size_bytes())));
    }
  }
  if (replayed.runs.empty()) {
    return InvalidArgument(fmt::format("{} has no requests; allowed: a trace", options.trace));
  }
  replayed.torn_lines = trace.torn_lines();
  return replayed;
}

std::string Share(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %",
                     whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string TableText(const Replayed& replayed, const SimulateOptions& options) {
  const SimulationResult& first = replayed.runs.front().result();
  const auto count = [](int64_t value) { return Grouped(static_cast<uint64_t>(value)); };
  TextTable trace("lrl");
  trace.AddRow(
      {"requests", count(first.requests), fmt::format("in {}", Duration(replayed.span_s()))});
  trace.AddRow({"prompt tokens", count(first.prompt_tokens)});
  trace.AddRow({"output tokens", count(first.completion_tokens)});
  trace.AddRow({"page", Grouped(replayed.page_bytes),
                fmt::format("bytes, of {} tokens", replayed.block_size)});
  trace.AddRow({"memory", options.memory_bytes == 0 ? "none" : BinarySize(options.memory_bytes)});
  trace.AddRow(
      {"retention", "", Duration(std::chrono::duration<double>(options.retention).count())});
  if (replayed.torn_lines > 0) {
    trace.AddRow({"cut off", Grouped(replayed.torn_lines), "lines, not counted"});
  }
  TextTable runs("rrrrrrrrrrrr");
  runs.AddRow({"store", "hit rate", "memory", "store", "refused pages", "evicted", "written",
               "peak held", "cost", "without cache", "saved"});
  for (const TraceSimulation& run : replayed.runs) {
    const SimulationResult& result = run.result();
    runs.AddRow({BinarySize(run.machine().store_bytes),
                 Share(result.memory_hit_tokens + result.store_hit_tokens, result.prompt_tokens),
                 Share(result.memory_hit_tokens, result.prompt_tokens),
                 Share(result.store_hit_tokens, result.prompt_tokens),
                 Grouped(result.refused_pages), Grouped(result.evicted_pages),
                 BinarySize(result.written_pages * replayed.page_bytes),
                 BinarySize(result.held_peak_pages * replayed.page_bytes),
                 DollarText(result.cost.with_cache), DollarText(result.cost.without_cache),
                 DollarText(result.saved())});
  }
  return trace.ToString() + "\n" + runs.ToString();
}

std::string JsonText(const Replayed& replayed, const SimulateOptions& options) {
  const SimulationResult& first = replayed.runs.front().result();
  Json json = {{"requests", first.requests},
               {"prompt_tokens", first.prompt_tokens},
               {"completion_tokens", first.completion_tokens},
               {"span_s", replayed.span_s()},
               {"torn_lines", replayed.torn_lines},
               {"block_size", replayed.block_size},
               {"page_bytes", replayed.page_bytes},
               {"memory_bytes", options.memory_bytes},
               {"retention_s", std::chrono::duration<double>(options.retention).count()}};
  Json& runs = json["runs"] = Json::array();
  for (const TraceSimulation& run : replayed.runs) {
    const SimulationResult& result = run.result();
    runs.push_back(
        {{"store_bytes", run.machine().store_bytes},
         {"memory_hit_tokens", result.memory_hit_tokens},
         {"store_hit_tokens", result.store_hit_tokens},
         {"miss_tokens", result.prompt_tokens - result.memory_hit_tokens - result.store_hit_tokens},
         {"refused_pages", result.refused_pages},
         {"evicted_pages", result.evicted_pages},
         {"written_bytes", result.written_pages * replayed.page_bytes},
         {"held_peak_bytes", result.held_peak_pages * replayed.page_bytes},
         {"cost_pico_usd", result.cost.with_cache},
         {"cost_without_cache_pico_usd", result.cost.without_cache},
         {"saved_pico_usd", result.saved()}});
  }
  return json.dump() + "\n";
}

int RunSimulate(const SimulateOptions& options) {
  ProgressLine line;
  const Result<std::string> text =
      SimulateText(options, [&](const std::string& progress) { line.Show(progress); });
  line.Clear();
  if (!text.ok()) {
    fmt::print(stderr, "emberkv simulate: {}\n", text.status().message());
    return 1;
  }
  const bool written = std::fwrite(text->data(), 1, text->size(), stdout) == text->size() &&
                       std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace

Result<std::string> SimulateText(const SimulateOptions& options,
                                 const std::function<void(const std::string&)>& progress) {
  PriceTable prices = PublishedPrices();
  if (!options.prices.empty()) {
    EMBERKV_ASSIGN_OR_RETURN(prices, LoadPriceTable(options.prices));
  }
  EMBERKV_ASSIGN_OR_RETURN(const Replayed replayed, Replay(options, prices, progress));
  return options.json ? JsonText(replayed, options) : TableText(replayed, options);
}

void AddSimulateCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("simulate", "Hits, refused pages, SSD bytes and cost of a trace");
  command->footer(kNotes);
  const auto options = std::make_shared<SimulateOptions>();
  command->add_option("--trace", options->trace, "Trace of requests")->required();
  command
      ->add_option_function<std::vector<std::string>>(
          "--store-size",
          [options](const std::vector<std::string>& sizes) {
            for (const std::string& size : sizes) {
              const Result<uint64_t> bytes = ParseBytes(size);
              if (!bytes.ok()) {
                throw CLI::ValidationError("--store-size", bytes.status().message());
              }
              options->store_bytes.push_back(*bytes);
            }
          },
          "Budget of the store, e.g. 4T; may be repeated")
      ->required();
  AddParsedOption(*command, "--retention", &options->retention, &ParseDuration,
                  "For how long a page is promised after its last use (default: 72h)");
  AddParsedOption(*command, "--memory", &options->memory_bytes, &ParseBytes,
                  "Memory for pages, e.g. 64G (default: none)");
  CLI::Option* model =
      command->add_option("--model", options->model, "Folder of the model, or its config.json");
  AddParsedOption(*command, "--page-bytes", &options->page_bytes, &ParseBytes,
                  "Bytes of a page, instead of --model")
      ->excludes(model);
  command->add_option("--prices", options->prices,
                      "Price table (default: as published on 2026-09-10)");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, exit_code] { *exit_code = RunSimulate(*options); });
}

}  // namespace emberkv
