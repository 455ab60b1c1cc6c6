#include "cli/eval_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/parsed_option.h"
#include "cli/progress_line.h"
#include "cli/quantity.h"
#include "cli/recall_eval.h"

namespace emberkv {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 31;

constexpr const char* kNotes =
    "FILE has one JSON object per line: id, tokens, place, prompt, expected, expected_ids. Each\n"
    "prompt is a session of its own, decoded greedily; it counts when all of expected_ids come, EOS\n"
    "included.\n"
    "Example:\n"
    "  emberkv eval recall MODEL_DIR/eval_prompts.jsonl --model MODEL_DIR --max-prompt-tokens 2K";

struct RecallOptions {
  ModelOptions model;
  std::string file;
  int64_t max_prompt_tokens = 0;  // 0: no limit
  int64_t limit = 0;              // 0: all
  int64_t min_exact = 0;
  bool json = false;
};

Result<std::vector<RecallPrompt>> ReadPrompts(const RecallOptions& options) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.file, kMaxFileBytes));
  Result<std::vector<RecallPrompt>> prompts = ParseRecallPrompts(text);
  if (!prompts.ok()) return prompts.status().WithContext(options.file);
  if (options.max_prompt_tokens > 0) {
    std::erase_if(*prompts, [&](const RecallPrompt& prompt) {
      return prompt.tokens > options.max_prompt_tokens;
    });
  }
  if (options.limit > 0 && prompts->size() > static_cast<size_t>(options.limit)) {
    prompts->resize(static_cast<size_t>(options.limit));
  }
  if (prompts->empty()) return InvalidArgument(options.file + " has no prompt that is wanted");
  return prompts;
}

// The greedy answer to a prompt, as long as the expected one at most. kCancelled after Ctrl-C.
Result<Generation> AnswerOf(const RecallPrompt& prompt, const RecallOptions& options,
                            const Engine& engine, const std::atomic<bool>* cancel,
                            ProgressLine* progress) {
  EMBERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine.OpenSession());
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, EncodeFirst(engine, prompt.prompt));
  EMBERKV_RETURN_IF_ERROR(
      PrefillWithProgress(*session, tokens, options.model.replay, cancel, progress));
  GenerateOptions generate;
  generate.max_tokens = static_cast<int64_t>(prompt.expected_ids.size());
  generate.cancel = cancel;
  Result<Generation> answer = session->Generate(generate);
  if (answer.ok() && answer->finish_reason == FinishReason::kCancelled) return Cancelled("Ctrl-C");
  return answer;
}

void PrintPrompt(const RecallPrompt& prompt, const Generation& answer, bool is_exact, bool json) {
  if (json) {
    const nlohmann::ordered_json line = {{"event", "prompt"},      {"id", prompt.id},
                                         {"tokens", prompt.tokens}, {"place", prompt.place},
                                         {"exact", is_exact},       {"expected", prompt.expected},
                                         {"text", answer.text}};
    fmt::print("{}\n",
               line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else if (!is_exact) {
    fmt::print("{} ({} tokens, {}): expected '{}', answered '{}'\n", prompt.id,
               Grouped(static_cast<uint64_t>(prompt.tokens)), prompt.place, prompt.expected,
               answer.text);
  }
  std::fflush(stdout);
}

Result<int> RunPrompts(const RecallOptions& options) {
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<RecallPrompt> prompts, ReadPrompts(options));
  const std::atomic<bool>* cancel = CancelOnInterrupt();
  ProgressLine progress;
  EMBERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           LoadWithProgress(options.model, &progress));
  const auto start = std::chrono::steady_clock::now();
  RecallScore score;
  for (const RecallPrompt& prompt : prompts) {
    Result<Generation> answer = AnswerOf(prompt, options, *engine, cancel, &progress);
    if (answer.status().code() == StatusCode::kCancelled) break;
    if (!answer.ok()) return answer.status().WithContext("prompt " + prompt.id);
    const bool is_exact = answer->tokens == prompt.expected_ids;
    score.Add(prompt, is_exact);
    PrintPrompt(prompt, *answer, is_exact, options.json);
    progress.Show(fmt::format("{} of {} prompts, {} exact", score.total().prompts, prompts.size(),
                              score.total().exact));
  }
  progress.Clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}", options.json ? score.SummaryLine(seconds) : score.Table());
  if (cancel->load()) return kInterruptedExitCode;
  if (score.total().exact >= options.min_exact) return 0;
  return InvalidArgument(
      fmt::format("{} answers are exact; wanted: {}", score.total().exact, options.min_exact));
}

int Run(const RecallOptions& options) {
  Result<int> exit_code = RunPrompts(options);
  std::fflush(stdout);
  if (exit_code.ok()) return *exit_code;
  fmt::print(stderr, "emberkv eval recall: {}\n", exit_code.status().message());
  return 1;
}

}  // namespace

void AddEvalCommand(CLI::App& app, int* exit_code) {
  CLI::App* eval = app.add_subcommand("eval", "Measure how well a model answers");
  eval->require_subcommand(1);
  CLI::App* command = eval->add_subcommand("recall", "Recall of facts planted in long prompts");
  command->footer(kNotes);
  auto options = std::make_shared<RecallOptions>();
  command->add_option("file", options->file, "Prompts, one JSON object per line")->required();
  AddModelOptions(*command, &options->model);
  AddParsedOption(*command, "--max-prompt-tokens", &options->max_prompt_tokens, &ParseTokens,
                  "Leave out longer prompts, e.g. 2K");
  AddParsedOption(*command, "--limit", &options->limit, &ParseTokens,
                  "Only so many of the prompts, from the first");
  AddParsedOption(*command, "--min-exact", &options->min_exact, &ParseTokens,
                  "Fail when fewer answers are exact");
  command->add_flag("--json", options->json, "Print one JSON object per line");
  command->callback([options, exit_code] { *exit_code = Run(*options); });
}

}  // namespace emberkv
