#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/engine_parts.h"

namespace emberkv {
namespace {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

bool IsSet(const std::atomic<bool>* flag) { return flag != nullptr && flag->load(); }

double Ratio(double part, int64_t whole) {
  return whole == 0 ? 0 : part / static_cast<double>(whole);
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      break;
  }
  return "cancelled";
}

double SessionStats::kv_bytes_per_token() const {
  return Ratio(static_cast<double>(kv_bytes), computed_tokens);
}

double SessionStats::filled_kv_bytes_per_token() const {
  return Ratio(static_cast<double>(filled_kv_bytes), computed_tokens);
}

double SessionStats::token_layer_share() const {
  return Ratio(static_cast<double>(token_layers), full_token_layers);
}

Session::Session(std::shared_ptr<EngineParts> parts, int64_t max_context)
    : parts_(std::move(parts)),
      max_context_(max_context),
      table_(parts_->pool.get(), parts_->model->layout().block_size),
      windows_(parts_->model->layout().window_bytes()),
      tails_(parts_->model->layout().tail_bytes / sizeof(float)) {
  state_.windows = windows_.data();
  state_.tails = tails_.data();
}

Session::~Session() = default;

Status Session::CheckPrefill(std::span<const int32_t> tokens) const {
  if (!broken_.ok()) return broken_;
  if (tokens.empty()) return InvalidArgument("the prompt is empty; allowed: at least one token");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= parts_->num_token_ids) {
      return InvalidArgument(fmt::format("token {} of the prompt is {}; allowed: 0 to {}", i,
                                         tokens[i], parts_->num_token_ids - 1));
    }
  }
  const int64_t total = num_tokens() + static_cast<int64_t>(tokens.size());
  if (total > max_context_) {
    return ResourceExhausted(
        fmt::format("the session holds {} tokens and the prompt has {}; the context is {} tokens",
                    num_tokens(), tokens.size(), max_context_));
  }
  return Status::Ok();
}

Status Session::Prefill(std::span<const int32_t> tokens, const PrefillOptions& options) {
  EMBERKV_RETURN_IF_ERROR(CheckPrefill(tokens));
  const Stopwatch watch;
  const int64_t had = num_tokens();
  const int64_t total = had + static_cast<int64_t>(tokens.size());
  EMBERKV_RETURN_IF_ERROR(table_.Reserve(total));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());

  const int64_t computed_before = computed_;
  const Status status =
      RunPlan(PlanPrefill(parts_->model->layout(), parts_->model->config().sliding_window,
                          options.replay, {computed_, state_.decoder_begin}, total),
              options);
  if (status.code() == StatusCode::kCancelled) {
    tokens_.resize(static_cast<size_t>(std::max(had, computed_)));
    table_.Trim(num_tokens());
  }
  prefill_tokens_ += computed_ - computed_before;
  prefill_seconds_ += watch.seconds();
  return status;
}

Status Session::RunPlan(const ReplayPlan& plan, const PrefillOptions& options) {
  while (computed_ < plan.end) {
    if (IsSet(options.cancel)) {
      return Cancelled(fmt::format("prefill stopped after {} of {} tokens", computed_ - plan.begin,
                                   plan.end - plan.begin));
    }
    state_.decoder_begin = plan.decoder_begin;
    replay_ = plan.mode;
    replay_note_ = plan.note;
    const int64_t end = std::min(computed_ + parts_->prefill_chunk, plan.end);
    EMBERKV_RETURN_IF_ERROR(RunStep(end, end == plan.end));
    if (options.progress) options.progress(computed_ - plan.begin, plan.end - plan.begin);
  }
  return Status::Ok();
}

// Computes tokens [computed_, end), whose pages are reserved.
Status Session::RunStep(int64_t end, bool wants_logits) {
  state_.tokens = tokens_.data();
  state_.pages = table_.pages();
  state_.writable_pages = table_.writable_pages();
  logits_.clear();

  const std::lock_guard<std::mutex> lock(parts_->step_mutex);
  Step& step = parts_->step;
  step.spans.assign(1, {&state_, computed_, end, wants_logits});
  const int64_t token_layers_before = step.token_layers;
  const Status status = parts_->model->Forward(&step);
  if (!status.ok()) {
    broken_ = status.WithContext("the session is unusable after a failed step");
    return broken_;
  }
  token_layers_ += step.token_layers - token_layers_before;
  if (wants_logits) logits_ = step.logits;
  computed_ = end;
  return Status::Ok();
}

struct Session::Answer {
  Sampler sampler;
  StopFilter filter;
  std::optional<StreamDecoder> decoder;
  Generation generation = {};

  // Adds text that is certain.
  void Add(const std::string& text, const GenerateOptions& options) {
    if (text.empty()) return;
    generation.text += text;
    if (options.on_text) options.on_text(text);
  }
};

Status Session::ComputeSampledToken() {
  EMBERKV_RETURN_IF_ERROR(table_.Reserve(num_tokens()));
  EMBERKV_RETURN_IF_ERROR(RunStep(num_tokens(), true));
  ++decode_tokens_;
  return Status::Ok();
}

// Samples until there is a reason to finish.
Status Session::SampleInto(const GenerateOptions& options, Answer* answer) {
  const Stopwatch watch;
  Generation& generation = answer->generation;
  while (true) {
    if (IsSet(options.cancel)) {
      generation.finish_reason = FinishReason::kCancelled;
      return Status::Ok();
    }
    if (static_cast<int64_t>(generation.tokens.size()) == options.max_tokens ||
        num_tokens() == max_context_) {
      generation.finish_reason = FinishReason::kLength;
      return Status::Ok();
    }
    if (logits_.empty()) EMBERKV_RETURN_IF_ERROR(ComputeSampledToken());
    EMBERKV_ASSIGN_OR_RETURN(const int32_t token, answer->sampler.Sample(logits_));
    logits_.clear();
    tokens_.push_back(token);
    generation.tokens.push_back(token);
    if (generation.tokens.size() == 1) generation.first_token_seconds = watch.seconds();
    if (options.stops_at_eos && token == parts_->model->config().eos_token_id) {
      generation.finish_reason = FinishReason::kEos;
      return Status::Ok();
    }
    if (!answer->decoder) continue;
    answer->Add(answer->filter.Push(answer->decoder->Push(token)), options);
    if (answer->filter.is_stopped()) {
      generation.finish_reason = FinishReason::kStop;
      return Status::Ok();
    }
  }
}

Result<Generation> Session::Generate(const GenerateOptions& options) {
  if (!broken_.ok()) return broken_;
  if (logits_.empty()) {
    return InvalidArgument(
        "there is nothing to answer: Generate follows a Prefill that ran to its end");
  }
  if (options.max_tokens < 1) {
    return InvalidArgument(
        fmt::format("max_tokens is {}; allowed: at least 1", options.max_tokens));
  }
  if (!options.stop_strings.empty() && !parts_->tokenizer) {
    return InvalidArgument("stop strings need a tokenizer.json, which the model lacks");
  }
  EMBERKV_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Make(options.sampler));
  EMBERKV_ASSIGN_OR_RETURN(StopFilter filter, StopFilter::Make(options.stop_strings));
  Answer answer{std::move(sampler), std::move(filter), std::nullopt};
  if (parts_->tokenizer) answer.decoder.emplace(*parts_->tokenizer);

  const Stopwatch watch;
  const Status status = SampleInto(options, &answer);
  decode_seconds_ += watch.seconds();
  EMBERKV_RETURN_IF_ERROR(status);
  if (answer.decoder && !answer.filter.is_stopped()) {
    answer.Add(answer.filter.Push(answer.decoder->Finish()), options);
    if (!answer.filter.is_stopped()) answer.Add(answer.filter.Finish(), options);
  }
  return std::move(answer.generation);
}

SessionStats Session::stats() const {
  const CacheLayout& layout = parts_->model->layout();
  SessionStats stats;
  stats.tokens = num_tokens();
  stats.computed_tokens = computed_;
  stats.pages = static_cast<int64_t>(table_.num_pages());
  stats.kv_bytes = table_.num_pages() * layout.page_bytes;
  for (const KvSource& source : layout.sources) {
    stats.filled_kv_bytes += static_cast<size_t>(computed_ / source.ratio) *
                             (layout.kv_row_bytes + layout.key_row_bytes);
  }
  stats.window_bytes = windows_.size();
  stats.tail_bytes = tails_.size() * sizeof(float);
  stats.token_layers = token_layers_;
  stats.full_token_layers = FullTokenLayers(layout, computed_);
  stats.prefill_tokens = prefill_tokens_;
  stats.decode_tokens = decode_tokens_;
  stats.prefill_seconds = prefill_seconds_;
  stats.decode_seconds = decode_seconds_;
  stats.replay = replay_;
  stats.replay_note = replay_note_;
  return stats;
}

std::span<const uint8_t> Session::page(size_t block) const {
  return {table_.pages()[block], parts_->pool->page_bytes()};
}

}  // namespace emberkv
