#include "cli/bench_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "bench/attention_bench.h"
#include "bench/formats_bench.h"
#include "bench/index_bench.h"
#include "bench/linear_bench.h"
#include "bench/store_bench.h"
#include "cli/bench_model.h"
#include "cli/bench_report.h"
#include "cli/progress_line.h"
#include "cli/quantity.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr uint64_t kMaxReportBytes = uint64_t{16} << 20;
constexpr const char* kExamples =
    "Every figure is a ratio to a limit of the machine, or to a rival, probed in the same run.\n"
    "Examples:\n"
    "  emberkv bench kernels\n"
    "  emberkv bench model --model models/ember-tiny --context 4K,32K --chunk 512\n"
    "  emberkv bench store build/bench-store --gigabytes 2\n"
    "  emberkv bench resume --model models/ember-tiny build/bench-resume\n"
    "  emberkv bench kernels --json > new.json && emberkv bench compare old.json new.json";

struct BenchOptions {
  int rounds = 5;
  int threads = 0;  // 0: for kernels one and all, otherwise all
  bool json = false;
  std::string model_dir, directory, before, after;
  std::vector<std::string> contexts = {"4K", "32K"};
  std::vector<int> chunks = {128, 512};
  std::string tokens = "32K", replay_tokens = "2K";
  double gigabytes = 1;
  uint64_t index_entries = 0;
  double tolerance = 0.1;
};

// What a subcommand found: measurements, text beyond their table, fields beyond theirs.
struct Findings {
  std::string text;
  Json json = Json::object();
};

using Run = std::function<Result<Findings>(const BenchOptions&)>;

int AllThreads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::vector<int> ThreadCounts(const BenchOptions& options) {
  if (options.threads > 0) return {options.threads};
  return AllThreads() > 1 ? std::vector<int>{1, AllThreads()} : std::vector<int>{1};
}

Result<Findings> BenchKernels(const BenchOptions& options) {
  ProgressLine progress;
  std::vector<Measurement> all;
  const auto add = [&](const char* what, int threads, std::vector<Measurement> (*bench)(int, int)) {
    progress.Show(fmt::format("{}, {} threads", what, threads));
    const std::vector<Measurement> more = bench(options.rounds, threads);
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const int threads : ThreadCounts(options)) {
    add("rows", threads, BenchFormats);
    add("index", threads, BenchIndex);
    add("attention", threads, BenchAttention);
    add("matrix products", threads, BenchLinear);
  }
  return Findings{MeasurementsText(all), {{"measurements", MeasurementsJson(all)}}};
}

Result<Findings> RunModelBench(const BenchOptions& options) {
  ProgressLine progress;
  ModelBenchOptions model;
  model.model_dir = options.model_dir;
  model.threads = options.threads > 0 ? options.threads : AllThreads();
  model.rounds = options.rounds;
  model.chunks = options.chunks;
  model.progress = [&](const std::string& what) { progress.Show(what); };
  for (const std::string& text : options.contexts) {
    EMBERKV_ASSIGN_OR_RETURN(const int64_t context, ParseTokens(text));
    model.contexts.push_back(context);
  }
  EMBERKV_ASSIGN_OR_RETURN(const ModelReport report, BenchModel(model));
  Findings findings{ModelReportText(report), ModelReportJson(report)};
  if (options.replay_tokens == "0") return findings;
  EMBERKV_ASSIGN_OR_RETURN(const int64_t tokens, ParseTokens(options.replay_tokens));
  progress.Show("replay modes");
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<ReplayRate> rates, BenchReplay(model.model_dir, tokens, model.threads));
  findings.text += fmt::format("\na prompt of {} tokens\n{}", Grouped(static_cast<uint64_t>(tokens)), ReplayRatesText(rates));
  findings.json["replay"] = ReplayRatesJson(rates);
  return findings;
}

// A folder that a benchmark fills and removes again.
class BenchFolder {
 public:
  static Result<std::unique_ptr<BenchFolder>> Make(const std::string& path) {
    std::error_code error;
    if (fs::exists(path, error)) {
      return InvalidArgument(fmt::format("{} exists; give a folder that does not: it is filled and removed", path));
    }
    fs::create_directories(path, error);
    if (error) return Unavailable(fmt::format("cannot make {}: {}", path, error.message()));
    return std::unique_ptr<BenchFolder>(new BenchFolder(path));
  }
  ~BenchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;

  std::string Inside(const char* name) const { return (fs::path(path_) / name).string(); }
  const std::string& path() const { return path_; }

 private:
  explicit BenchFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

Result<Findings> RunStoreBench(const BenchOptions& options) {
  EMBERKV_ASSIGN_OR_RETURN(const auto folder, BenchFolder::Make(options.directory));
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<Measurement> all,
                           BenchStore(folder->path(), options.gigabytes, options.index_entries, options.rounds));
  return Findings{MeasurementsText(all), {{"measurements", MeasurementsJson(all)}}};
}

Result<Findings> RunResumeBench(const BenchOptions& options) {
  EMBERKV_ASSIGN_OR_RETURN(const int64_t tokens, ParseTokens(options.tokens));
  EMBERKV_ASSIGN_OR_RETURN(const auto folder, BenchFolder::Make(options.directory));
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<FirstToken> runs,
                           BenchFirstToken(options.model_dir, folder->Inside("model"), tokens));
  EMBERKV_ASSIGN_OR_RETURN(const Measurement load, BenchSessionLoad(folder->Inside("pages"), options.rounds));
  Findings findings;
  findings.text = fmt::format("a prompt of {} tokens\n{}\n{}", Grouped(static_cast<uint64_t>(tokens)),
                              FirstTokensText(runs), MeasurementsText({&load, 1}));
  findings.json = {{"tokens", tokens}, {"first_token", FirstTokensJson(runs)}, {"measurements", MeasurementsJson({&load, 1})}};
  return findings;
}

int RunAndPrint(const BenchOptions& options, const Run& run) {
  const Result<Findings> findings = run(options);
  if (!findings.ok()) {
    fmt::print(stderr, "emberkv bench: {}\n", findings.status().message());
    return 1;
  }
  const MachineFacts facts = FactsOfThisMachine();
  if (options.json) {
    Json json = {{"machine", MachineJson(facts)}};
    json.update(findings->json);
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}\n{}", MachineText(facts), findings->text);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int RunCompare(const BenchOptions& options) {
  const auto compare = [&]() -> Result<BenchComparison> {
    EMBERKV_ASSIGN_OR_RETURN(const std::string before, ReadTextFile(options.before, kMaxReportBytes));
    EMBERKV_ASSIGN_OR_RETURN(const std::string after, ReadTextFile(options.after, kMaxReportBytes));
    return CompareReports(before, after, options.tolerance);
  };
  const Result<BenchComparison> comparison = compare();
  if (!comparison.ok()) {
    fmt::print(stderr, "emberkv bench compare: {}\n", comparison.status().message());
    return 1;
  }
  fmt::print("{}", comparison->text);
  return comparison->has_regression ? 1 : 0;
}

CLI::App* AddKind(CLI::App& bench, const std::shared_ptr<BenchOptions>& options, const char* name,
                  const char* description, int* exit_code, Run run) {
  CLI::App* command = bench.add_subcommand(name, description);
  command->add_option("--rounds", options->rounds, "Turns of limit, subject, limit again and rival; medians are printed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([=] { *exit_code = RunAndPrint(*options, run); });
  return command;
}

}  // namespace

void AddBenchCommand(CLI::App& app, int* exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Kernels, model, store and resuming against the machine's limits");
  bench->footer(kExamples);
  bench->require_subcommand(1);
  auto options = std::make_shared<BenchOptions>();

  CLI::App* kernels = AddKind(*bench, options, "kernels", "Every hot loop against its limit", exit_code, BenchKernels);
  CLI::App* model = AddKind(*bench, options, "model", "Decode against DRAM, prefill against bf16 products", exit_code,
                            RunModelBench);
  for (CLI::App* command : {kernels, model}) {
    command->add_option("--threads", options->threads, "Threads (default: kernels with one and with all, a model with all)")
        ->check(CLI::Range(1, 1024));
  }
  model->add_option("--model", options->model_dir, "Folder of the checkpoint")->required();
  model->add_option("--context", options->contexts, "Tokens before the measured decode step")->delimiter(',')->capture_default_str();
  model->add_option("--chunk", options->chunks, "Rows of the measured prefill steps")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  model->add_option("--replay-tokens", options->replay_tokens, "Prompt for bounded, exact and full side by side; 0: none")
      ->capture_default_str();

  CLI::App* store = AddKind(*bench, options, "store", "The local store against its disk and RocksDB", exit_code, RunStoreBench);
  store->add_option("folder", options->directory, "Made, filled and removed; its disk is what is measured")->required();
  store->add_option("--gigabytes", options->gigabytes, "Pages to put and get")->check(CLI::Range(0.1, 1000.0))->capture_default_str();
  store->add_option("--index-entries", options->index_entries, "Further pages in the index, without bytes of their own");

  CLI::App* resume = AddKind(*bench, options, "resume", "The first token, cold and warm, and loading a session", exit_code,
                             RunResumeBench);
  resume->add_option("folder", options->directory, "Made, filled and removed")->required();
  resume->add_option("--model", options->model_dir, "Folder of the checkpoint")->required();
  resume->add_option("--tokens", options->tokens, "Length of the prompt")->capture_default_str();

  CLI::App* compare = bench->add_subcommand("compare", "Two JSON reports; exit 1 when a ratio fell");
  compare->add_option("before", options->before)->required();
  compare->add_option("after", options->after)->required();
  compare->add_option("--tolerance", options->tolerance, "A fall by less than this part is noise")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  compare->callback([=] { *exit_code = RunCompare(*options); });
}

}  // namespace emberkv
