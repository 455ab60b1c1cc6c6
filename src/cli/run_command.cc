#include "cli/run_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/parsed_option.h"
#include "cli/progress_line.h"
#include "cli/prompt_text.h"
#include "cli/quantity.h"
#include "cli/run_report.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

// A store that takes longer is broken; what is not written by then is computed again another time.
constexpr std::chrono::seconds kFlushTimeout{60};

constexpr const char* kNotes =
    "Documents are joined as they are; the first prompt follows them, the next ones follow the\n"
    "answers. A prompt starts on a new line: a newline goes before it unless it begins with one, "
    "or\n"
    "the text before it ends in one, or nothing is before it. The BOS token goes first unless the\n"
    "text has it. Without a prompt the model continues the documents.\n"
    "With --chat each prompt is a user message in the DeepSeek chat format, the first one with "
    "the\n"
    "documents before it; --think lets the model reason before it answers, up to </think>.\n"
    "With --store, the beginning of the first prompt that the directory holds is read instead of\n"
    "computed, and every complete block of the session is written to it. One process uses a store "
    "at\n"
    "a time.\n"
    "Ctrl-C ends the run at the next step and stores what is complete; a second one ends it at "
    "once.\n"
    "Example:\n"
    "  emberkv run --model MODEL_DIR --file report.txt --prompt \"Question: ...\" --store cache";

struct RunOptions {
  ModelOptions model;
  std::vector<std::string> files;
  std::vector<std::string> prompts;
  bool is_chat = false;
  ChatForm chat;
  SessionOptions session;
  GenerateOptions generate;
  bool json = false;
};

bool Print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

std::string ReadStandardInput() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.ends_with('\n')) text.pop_back();  // the shell's, not the prompt's
  return text;
}

// The chat format stands on tokens that a model's tokenizer may not have.
Status CheckChatTokens(const Engine& engine) {
  for (const std::string_view token :
       {kBosText, kEosText, kSystemText, kUserText, kAssistantText, kThinkBegin, kThinkEnd}) {
    EMBERKV_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, engine.Encode(token));
    if (ids.size() != 1) {
      return InvalidArgument(fmt::format(
          "--chat: the model's tokenizer has no token {}; the DeepSeek chat format needs it",
          token));
    }
  }
  return Status::Ok();
}

// The run of one session, prompt by prompt.
class Conversation {
 public:
  Conversation(const RunOptions& options, const Engine& engine, std::unique_ptr<Session> session,
               const std::atomic<bool>* cancel)
      : options_(options), engine_(engine), session_(std::move(session)), cancel_(cancel) {}

  // Asks `prompt` after `documents`, the text before it that is not prefilled yet, and prints the
  // answer.
  Status Ask(const std::string& documents, const std::string& prompt) {
    AnswerReport answer;
    answer.index = static_cast<int>(asked_++);
    answer.prompt = prompt;
    const bool is_first = session_->tokens().empty();
    EMBERKV_ASSIGN_OR_RETURN(const std::string text, PromptText(documents, is_first, prompt));
    EMBERKV_RETURN_IF_ERROR(Answer(text, is_first, &answer));
    if (options_.json) Print(AnswerJson(answer));
    last_answer_ = answer.text;
    summary_.prompt_tokens += answer.prompt_tokens;
    summary_.output_tokens += answer.output_tokens;
    if (is_first) {
      summary_.first_prompt_tokens = answer.prompt_tokens;
      summary_.ttft_seconds = answer.ttft_seconds;
    }
    return Status::Ok();
  }

  bool is_cancelled() const { return cancel_->load(); }

  RunSummary Summary() const {
    RunSummary summary = summary_;
    summary.session = session_->stats();
    summary.pool = engine_.pool_stats();
    summary.caches = engine_.cache_stats();
    summary.weight_bytes = engine_.weight_bytes();
    summary.experts = engine_.expert_stats();
    summary.threads = engine_.num_threads();
    summary.isa = engine_.isa_name();
    return summary;
  }

 private:
  Result<std::string> PromptText(const std::string& documents, bool is_first,
                                 const std::string& prompt) const {
    if (options_.is_chat) {
      if (is_first) return FirstChatText(options_.chat, documents, prompt);
      const bool ended = session_->tokens().back() == engine_.config().eos_token_id;
      return NextChatText(options_.chat, last_answer_, ended, prompt);
    }
    if (is_first) return FirstText(documents, prompt);
    return (StartsNewLine(last_answer_, false, prompt) ? "\n" : "") + prompt;
  }

  Status Answer(const std::string& text, bool is_first, AnswerReport* answer) {
    const auto start = std::chrono::steady_clock::now();
    EMBERKV_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                             is_first ? EncodeFirst(engine_, text) : engine_.Encode(text));
    answer->prompt_tokens = static_cast<int64_t>(tokens.size());
    const Status status =
        PrefillWithProgress(*session_, tokens, options_.model.replay, cancel_, &progress_);
    if (status.code() == StatusCode::kCancelled) return Status::Ok();
    EMBERKV_RETURN_IF_ERROR(status);
    const double prefill_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

    GenerateOptions generate = options_.generate;
    generate.cancel = cancel_;
    if (!options_.json) {
      if (options_.prompts.size() > 1) Print("> " + answer->prompt + "\n");
      generate.on_text = [](std::string_view piece) { Print(std::string(piece)); };
    }
    EMBERKV_ASSIGN_OR_RETURN(Generation generation, session_->Generate(generate));
    if (!options_.json) Print("\n");
    answer->text = std::move(generation.text);
    answer->output_tokens = static_cast<int64_t>(generation.tokens.size());
    answer->ttft_seconds = prefill_seconds + generation.first_token_seconds;
    answer->finish_reason = generation.finish_reason;
    return Status::Ok();
  }

  const RunOptions& options_;
  const Engine& engine_;
  const std::unique_ptr<Session> session_;
  const std::atomic<bool>* const cancel_;
  ProgressLine progress_;
  size_t asked_ = 0;
  std::string last_answer_;
  RunSummary summary_;
};

// Lets the complete blocks reach the store, so that the next run finds them.
void FlushWithNotice(const Engine& engine, ProgressLine* progress) {
  const auto deadline = std::chrono::steady_clock::now() + kFlushTimeout;
  while (!engine.Flush(std::chrono::milliseconds(100))) {
    const size_t pages = engine.cache_stats().pages.writes.queued_pages;
    if (std::chrono::steady_clock::now() > deadline) {
      progress->Clear();
      fmt::print(stderr, "emberkv run: {} pages are not stored after {} s; given up\n", pages,
                 kFlushTimeout.count());
      return;
    }
    progress->Show(fmt::format("storing {} pages; Ctrl-C gives them up", pages));
  }
  progress->Clear();
}

Status AskAll(const RunOptions& options, std::string documents, Conversation* conversation) {
  for (const std::string& prompt : options.prompts) {
    if (conversation->is_cancelled()) break;
    EMBERKV_RETURN_IF_ERROR(conversation->Ask(documents, prompt));
    documents.clear();
  }
  return Status::Ok();
}

Result<int> RunPrompts(RunOptions options) {
  // What can be refused is refused before the model is loaded.
  EMBERKV_RETURN_IF_ERROR(Sampler::Make(options.generate.sampler).status());
  EMBERKV_ASSIGN_OR_RETURN(std::string text, ReadDocuments(options.files));
  for (std::string& prompt : options.prompts) {
    if (prompt == "-") prompt = ReadStandardInput();
  }
  if (options.prompts.empty()) options.prompts.push_back("");

  const std::atomic<bool>* cancel = CancelOnInterrupt();
  ProgressLine progress;
  EMBERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           LoadWithProgress(options.model, &progress));
  if (options.is_chat) EMBERKV_RETURN_IF_ERROR(CheckChatTokens(*engine));
  EMBERKV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, engine->OpenSession(options.session));
  Conversation conversation(options, *engine, std::move(session), cancel);
  const Status asked = AskAll(options, std::move(text), &conversation);
  FlushWithNotice(*engine, &progress);
  EMBERKV_RETURN_IF_ERROR(asked);
  const RunSummary summary = conversation.Summary();
  const bool printed = Print(options.json ? SummaryJson(summary) : "\n" + SummaryText(summary));
  if (conversation.is_cancelled()) return kInterruptedExitCode;
  return printed ? 0 : 1;
}

int Run(const RunOptions& options) {
  Result<int> exit_code = RunPrompts(options);
  if (exit_code.ok()) return *exit_code;
  fmt::print(stderr, "emberkv run: {}\n", exit_code.status().message());
  return 1;
}

void AddReuseOptions(CLI::App& command, RunOptions* options) {
  AddCacheOptions(command, &options->model.engine);
  for (const char* name : {"--store-size", "--retention"}) command.get_option(name)->needs("--store");
  command.add_flag("--no-store", options->session.no_store,
                   "Reuse what is stored, but leave nothing of this run behind");
}

void AddChatOptions(CLI::App& command, RunOptions* options) {
  CLI::Option* chat = command.add_flag("--chat", options->is_chat,
                                       "Each prompt is a user message of a conversation");
  command.add_option("--system", options->chat.system, "System message of the conversation")
      ->needs(chat);
  command
      .add_flag_callback(
          "--think", [options] { options->chat.thinking_mode = ThinkingMode::kThinking; },
          "Let the model reason before it answers")
      ->needs(chat);
}

}  // namespace

void AddRunCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("run", "Let a model answer prompts about documents");
  command->footer(kNotes);
  auto options = std::make_shared<RunOptions>();
  AddModelOptions(*command, &options->model);
  AddReuseOptions(*command, options.get());
  AddChatOptions(*command, options.get());
  AddParsedOption(*command, "--context", &options->model.engine.max_context, &ParseTokens,
                  "Most tokens of the session, e.g. 32K (default: what the model allows)");
  command->add_option("--file", options->files, "Document to read first; may be repeated");
  // One value each: an option that takes several would split a prompt in brackets at its commas.
  command
      ->add_option("--prompt", options->prompts,
                   "Prompt; may be repeated, each is answered in turn; - reads standard input")
      ->allow_extra_args(false);
  command->add_option("--max-tokens", options->generate.max_tokens, "Most tokens of an answer")
      ->capture_default_str();
  SamplerOptions& sampler = options->generate.sampler;
  command->add_option("--temperature", sampler.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  command->add_option("--top-p", sampler.top_p, "Share of the likeliest tokens to draw from")
      ->capture_default_str();
  command->add_option("--seed", sampler.seed, "Of the draws")->capture_default_str();
  command
      ->add_option("--stop", options->generate.stop_strings,
                   "Text that ends an answer and is not part of it; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "Print one JSON object per line");
  command->callback([options, exit_code] {
    if (options->files.empty() && options->prompts.empty()) {
      throw CLI::ValidationError("run", "give a --prompt, a --file or both");
    }
    *exit_code = Run(*options);
  });
}

}  // namespace emberkv
