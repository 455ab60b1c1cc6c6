#include "cli/cache_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/cache_tools.h"
#include "cli/parsed_option.h"
#include "cli/progress_line.h"
#include "cli/prompt_text.h"
#include "cli/quantity.h"

namespace emberkv {
namespace {

constexpr const char* kNotes =
    "A store belongs to one process at a time: while `emberkv run` has it, these commands are "
    "refused.\n"
    "None of them extends the deadline of a page.";
constexpr const char* kTenantNotes =
    "A tenant is whom pages belong to. All pages of `emberkv run` belong to one, called local; a "
    "server\n"
    "with several users gives each one of its own: name:NAME here, 64 hex digits in `cache ls --json`.\n"
    "Erased pages cannot be read from then on; their bytes stay in the files until they are "
    "written over.";

struct CacheOptions {
  std::string directory;
  uint64_t budget_bytes = 0;  // sweep; 0: the store's own
  bool json = false;
  size_t limit = 0;    // ls
  std::string tenant;  // erase
  std::string model;   // explain
  std::string prompt;
  std::vector<std::string> files;
  ReplayMode replay = ReplayMode::kBounded;
};

using Tool = std::function<Result<std::string>(LocalStore& store, const CacheOptions& options,
                                               int* exit_code)>;

Result<std::string> Verify(LocalStore& store, const CacheOptions& options, int* exit_code) {
  ProgressLine line;
  const uint64_t pages = store.Stats().pages;
  const ScrubReport report = VerifyPages(store, [&](const ScrubReport& so_far) {
    line.Show(fmt::format("verified {} of {} pages", Grouped(so_far.pages), Grouped(pages)));
  });
  const bool is_sound = report.corrupt == 0 && report.failed == 0 && report.is_complete;
  *exit_code = is_sound ? 0 : 1;
  return VerifyText(report, options.json);
}

Result<std::string> ExplainPrompt(LocalStore& store, const CacheOptions& options) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string documents, ReadDocuments(options.files));
  EMBERKV_ASSIGN_OR_RETURN(const PrefixProbe model, PrefixProbe::Open(options.model));
  return ExplainText(store, model, FirstText(documents, options.prompt),
                     {options.replay, options.json});
}

Result<std::string> UseStore(const CacheOptions& options, const Tool& tool, int* exit_code) {
  const SystemClock clock;
  EMBERKV_ASSIGN_OR_RETURN(const std::unique_ptr<LocalStore> store,
                           OpenStore(options.directory, options.budget_bytes, &clock));
  return tool(*store, options, exit_code);
}

int Run(const std::string& name, const CacheOptions& options, const Tool& tool) {
  int exit_code = 0;
  const Result<std::string> text = UseStore(options, tool, &exit_code);
  if (!text.ok()) {
    fmt::print(stderr, "emberkv cache {}: {}\n", name, text.status().message());
    return 1;
  }
  const bool written = std::fwrite(text->data(), 1, text->size(), stdout) == text->size() &&
                       std::fflush(stdout) == 0;
  return written ? exit_code : 1;
}

// A subcommand with what all of them take. The store's directory is positional but for `explain`.
CLI::App* AddTool(CLI::App& cache, const std::string& name, const std::string& description,
                  const std::shared_ptr<CacheOptions>& options, Tool tool, int* exit_code) {
  CLI::App* command = cache.add_subcommand(name, description);
  command
      ->add_option(name == "explain" ? "--store" : "store", options->directory,
                   "The store's directory")
      ->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([name, options, tool = std::move(tool), exit_code] {
    *exit_code = Run(name, *options, tool);
  });
  return command;
}

void AddExplain(CLI::App& cache, int* exit_code) {
  const auto options = std::make_shared<CacheOptions>();
  CLI::App* explain = AddTool(
      cache, "explain", "What a run would reuse for a prompt, and why not more", options,
      [](LocalStore& store, const CacheOptions& chosen, int*) {
        return ExplainPrompt(store, chosen);
      },
      exit_code);
  explain->add_option("prompt", options->prompt, "The first prompt of the run");
  explain->add_option("--file", options->files, "Document before it; may be repeated")
      ->allow_extra_args(false);
  explain->add_option("--model", options->model, "Folder of the model")->required();
  AddParsedOption(*explain, "--replay", &options->replay, &ParseReplayMode,
                  "As the run's: bounded (default), exact or full");
}

}  // namespace

void AddCacheCommand(CLI::App& app, int* exit_code) {
  CLI::App* cache = app.add_subcommand("cache", "Look into a store of global KV and tend it");
  cache->require_subcommand(1);
  cache->footer(kNotes);

  auto options = std::make_shared<CacheOptions>();
  AddTool(
      *cache, "stat", "Space, pages and deadlines", options,
      [](LocalStore& store, const CacheOptions& chosen, int*) { return DescribeStore(store, chosen.json); },
      exit_code);

  options = std::make_shared<CacheOptions>();
  AddTool(
      *cache, "ls", "The pages, in the order of their keys", options,
      [](LocalStore& store, const CacheOptions& chosen, int*) {
        return ListPages(store, {chosen.limit, chosen.json});
      },
      exit_code)
      ->add_option("--limit", options->limit, "At most so many pages");

  options = std::make_shared<CacheOptions>();
  AddTool(*cache, "verify", "Read everything; fail when anything is corrupt", options, Verify,
          exit_code);

  AddExplain(*cache, exit_code);

  options = std::make_shared<CacheOptions>();
  CLI::App* sweep = AddTool(
      *cache, "sweep", "Free the space of expired pages now", options,
      [](LocalStore& store, const CacheOptions& chosen, int*) {
        return Result<std::string>(SweepPages(store, chosen.json));
      },
      exit_code);
  AddParsedOption(*sweep, "--store-size", &options->budget_bytes, &ParseBytes,
                  "The store's budget from now on (default: as it was last opened with)");

  options = std::make_shared<CacheOptions>();
  CLI::App* erase = AddTool(
      *cache, "erase", "Make a tenant's pages unreadable", options,
      [](LocalStore& store, const CacheOptions& chosen, int*) {
        return ErasePages(store, chosen.directory, chosen.tenant, chosen.json);
      },
      exit_code);
  erase->add_option("--tenant", options->tenant, "local, name:NAME, 64 hex digits, or all")->required();
  erase->footer(kTenantNotes);
}

}  // namespace emberkv
