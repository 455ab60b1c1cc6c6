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

Session::Session(std::shared_ptr<EngineParts> parts, const SessionOptions& options)
    : parts_(std::move(parts)),
      options_(options),
      key_root_(TenantKeyRoot(parts_->identity, parts_->tenant_secret, options_.tenant)),
      tenant_(TenantMark(parts_->tenant_secret, options_.tenant.name)),
      seat_(parts_->scheduler.get(), DigestHash()(tenant_)),
      table_(parts_->cache->pool(), parts_->model->layout().block_size),
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
  if (total > options_.max_context) {
    return ResourceExhausted(
        fmt::format("the session holds {} tokens and the prompt has {}; the context is {} tokens",
                    num_tokens(), tokens.size(), options_.max_context));
  }
  return Status::Ok();
}

Status Session::Prefill(std::span<const int32_t> tokens, const PrefillOptions& options) {
  EMBERKV_RETURN_IF_ERROR(CheckPrefill(tokens));
  const Stopwatch watch;
  const int64_t had = num_tokens();
  const int64_t total = had + static_cast<int64_t>(tokens.size());
  const bool is_first = had == 0;
  ComputeClaim claim;
  if (is_first && options_.reuses_prefixes && MayReuse(options.replay)) {
    EMBERKV_RETURN_IF_ERROR(ReusePrefix(tokens, options, &claim));
  }
  const Status reserved = table_.Reserve(total);
  if (!reserved.ok()) {
    if (is_first) StartOver();
    return reserved;
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());

  const int64_t first_row = computed_;
  const Status status = RunPlan(PlanOf(options, total), options);
  seat_.Leave();
  if (status.code() == StatusCode::kCancelled) {
    if (resume_) {  // the shared rows beyond the replay belong to tokens that are forgotten now
      StartOver();
    } else {
      tokens_.resize(static_cast<size_t>(std::max(had, computed_)));
      table_.Trim(num_tokens());
    }
  }
  if (status.ok()) PublishBoundary();
  prefill_tokens_ += std::max<int64_t>(0, computed_ - first_row);
  prefill_seconds_ += watch.seconds();
  return status;
}

ReplayPlan Session::PlanOf(const PrefillOptions& options, int64_t total) const {
  ReplayPlan plan = PlanPrefill(parts_->model->layout(), parts_->model->config().sliding_window,
                                options.replay, {computed_, state_.decoder_begin}, total);
  if (resume_) {
    plan.decoder_begin = resume_->decoder_begin;
    plan.note.clear();
  }
  return plan;
}

// Where the next step ends at the latest: at a chunk's size, at the hit while rows below it are replayed,
// at the prompt's last block boundary, whose windows are kept, or at `end`.
int64_t Session::NextStop(int64_t end) const {
  int64_t stop = std::min(computed_ + parts_->prefill_chunk, end);
  if (resume_) stop = std::min(stop, resume_->hit);
  const int64_t block = parts_->model->layout().block_size;
  const int64_t boundary = end / block * block;
  return computed_ < boundary ? std::min(stop, boundary) : stop;
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
    const int64_t end = NextStop(plan.end);
    EMBERKV_RETURN_IF_ERROR(Advance(end, end == plan.end));
    if (options.progress) options.progress(computed_ - plan.begin, plan.end - plan.begin);
  }
  return Status::Ok();
}

// Runs a step, which may stop before `end`, and does what its end calls for.
Status Session::Advance(int64_t end, bool wants_logits) {
  EMBERKV_RETURN_IF_ERROR(RunStep(end, wants_logits));
  if (resume_ && computed_ == resume_->hit) FinishReplay();
  SealBlocks();
  return Status::Ok();
}

// Computes tokens from computed_ on, whose pages are reserved: at least one, at most to `end`.
Status Session::RunStep(int64_t end, bool wants_logits) {
  state_.tokens = tokens_.data();
  state_.pages = table_.pages();
  state_.writable_pages = table_.writable_pages();
  logits_.clear();
  StepOutcome outcome = parts_->scheduler->Run(&seat_, {&state_, computed_, end, wants_logits});
  if (!outcome.status.ok()) {
    broken_ = outcome.status.WithContext("the session is unusable after a failed step");
    return broken_;
  }
  token_layers_ += outcome.token_layers;
  logits_ = std::move(outcome.logits);
  computed_ = outcome.end;
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
  EMBERKV_RETURN_IF_ERROR(Advance(num_tokens(), true));
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
        num_tokens() == options_.max_context) {
      generation.finish_reason = FinishReason::kLength;
      return Status::Ok();
    }
    if (logits_.empty()) EMBERKV_RETURN_IF_ERROR(ComputeSampledToken());
    EMBERKV_ASSIGN_OR_RETURN(const int32_t token, answer->sampler.Sample(logits_));
    if (options.on_token) options.on_token(DescribeToken(logits_, token, options.top_logprobs));
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
  seat_.Leave();
  decode_seconds_ += watch.seconds();
  if (status.ok()) PublishBoundary();
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
  stats.reuse = reuse_;
  return stats;
}

std::span<const uint8_t> Session::page(size_t block) const {
  return {table_.pages()[block], parts_->cache->pool()->page_bytes()};
}

}  // namespace emberkv
