#include "server/generation.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "server/answer_stream.h"
#include "server/answer_writer.h"
#include "server/openai_error.h"
#include "server/reply_channel.h"

namespace emberkv {
namespace {

using Clock = std::chrono::steady_clock;

// How often a request that computes in silence looks whether its client is still there, and after how long
// a silence a stream says that it lives.
constexpr std::chrono::milliseconds kLookInterval{50};
constexpr std::chrono::seconds kKeepAliveInterval{10};

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// One answer. Its own thread writes it; others read it when that thread has ended.
struct Answer {
  Answer(size_t i, const AnswerForm& form) : index(i), stream(form) {}

  const size_t index;
  AnswerStream stream;
  std::vector<ReportedToken> tokens;  // not yet sent
  bool has_thought = false;           // the reasoning is over

  Status status;
  std::string finish_reason;
  bool is_prefilled = false;
  ReuseStats reuse;
  int64_t output_tokens = 0;  // EOS included
  int64_t reasoning_tokens = 0;
  Clock::time_point first_token;
  Clock::time_point last_token;
};

// A request on its way: threads that compute answers, and the caller's thread, which looks after them.
//
// One thread at a time uses the writer, whoever has set is_sending_, and takes along what others add meanwhile. A
// thread that computes sends only what need not wait for the client, as handing it over would cost more than the
// sending; otherwise the caller's thread goes on with it.
class GenerationRun {
 public:
  GenerationRun(const GenerationRequest& request, const GenerationContext& context, const Engine& engine,
                ReplyChannel* channel);

  GenerationOutcome Run();

 private:
  struct Posted {
    size_t answer = 0;
    AnswerPiece piece;
  };

  // On the answers' threads.
  void ComputeAnswers();
  Status Compute(Answer* answer);
  Status Prefill(Session* session, Answer* answer);
  void TakeToken(const SampledToken& sampled, Answer* answer);
  void Post(Answer* answer, std::vector<AnswerDelta> deltas, std::string finish_reason = "");
  std::string FinishText(const Answer& answer, FinishReason reason) const;
  void LookOut();
  // On any, which has set is_sending_.
  void SendPieces(std::unique_lock<std::mutex>* lock, bool may_wait);
  void NoteSent(bool is_sent);

  // On the caller's.
  void Start();
  void LookAfterAnswers();
  void CountPrompts(GenerationOutcome* outcome) const;
  void CountAnswers(GenerationOutcome* outcome) const;
  void Settle(GenerationOutcome* outcome) const;
  std::optional<ApiError> Failure(std::string* log) const;

  bool is_gone() const { return channel_->gone().load(std::memory_order_relaxed); }
  bool must_stop() const { return context_.stop != nullptr && context_.stop->load(std::memory_order_relaxed); }

  const GenerationRequest& request_;
  const GenerationContext& context_;
  const Engine& engine_;
  ReplyChannel* const channel_;
  const int32_t eos_token_;
  const std::unique_ptr<AnswerWriter> writer_;

  std::vector<Answer> answers_;
  std::atomic<size_t> next_{0};   // the first answer that nobody computes yet
  std::atomic<bool> halt_{false};  // all computing is to end

  std::mutex mutex_;
  std::condition_variable caller_;  // has something to do
  std::vector<Posted> pieces_;      // guarded by mutex_
  size_t num_running_ = 0;          // guarded by mutex_: threads
  bool is_sending_ = false;         // guarded by mutex_
  bool must_wait_ = false;          // guarded by mutex_: the caller's thread is to go on with the sending
  // Of whoever has set is_sending_, in the end the caller's.
  Clock::time_point sent_ = Clock::now();
  bool was_given_up_ = false;  // the client reads no more
  std::vector<std::thread> threads_;
};

GenerationRun::GenerationRun(const GenerationRequest& request, const GenerationContext& context,
                             const Engine& engine, ReplyChannel* channel)
    : request_(request),
      context_(context),
      engine_(engine),
      channel_(channel),
      eos_token_(engine.config().eos_token_id),
      writer_(AnswerWriter::Make(request, context, engine, channel)) {
  for (size_t i = 0; i < request.num_answers(); ++i) {
    answers_.emplace_back(i, AnswerForm{request.is_thinking, request.parses_tool_calls});
  }
}

GenerationOutcome GenerationRun::Run() {
  context_.progress->prompt_tokens = request_.prompt_tokens();
  context_.progress->phase = GenerationProgress::Phase::kPrefill;
  Start();
  LookAfterAnswers();
  for (std::thread& thread : threads_) thread.join();
  context_.progress->phase = GenerationProgress::Phase::kDone;

  GenerationOutcome outcome;
  CountPrompts(&outcome);
  CountAnswers(&outcome);
  Settle(&outcome);
  std::string log;
  const std::optional<ApiError> failure = Failure(&log);
  bool is_answered = false;
  if (failure) {
    outcome.error = std::move(log);
    outcome.finish_reason = "error";
    outcome.http_status = failure->http_status;
    is_answered = failure->http_status != 499 && writer_->Fail(*failure);
  } else {
    is_answered = !was_given_up_ && !is_gone() && writer_->Finish(outcome);
  }
  if (!is_answered) {
    outcome.http_status = 499;
    if (outcome.error.empty()) outcome.error = "the client went away";
  }
  return outcome;
}

void GenerationRun::Start() {
  const size_t wanted = std::min(answers_.size(), kMaxParallelAnswers);
  for (size_t i = 0; i < wanted; ++i) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++num_running_;
    }
    // The standard library has no other way to say that there is no thread.
    try {
      threads_.emplace_back([this] { ComputeAnswers(); });
    } catch (const std::system_error&) {
      const std::lock_guard<std::mutex> lock(mutex_);
      --num_running_;
      break;
    }
  }
  if (threads_.empty()) answers_.front().status = ResourceExhausted("the system has no thread for the answer");
}

void GenerationRun::ComputeAnswers() {
  for (size_t i = next_++; i < answers_.size() && !halt_; i = next_++) {
    Answer& answer = answers_[i];
    // No memory, say: the request fails, the server goes on.
    try {
      answer.status = Compute(&answer);
    } catch (const std::exception& error) {
      answer.status = Internal(error.what());
    }
    if (!answer.status.ok()) halt_ = true;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  --num_running_;
  caller_.notify_one();
}

Status GenerationRun::Compute(Answer* answer) {
  SessionOptions options;
  options.no_store = request_.no_store;
  options.tenant = {context_.tenant, request_.cache_salt};
  options.limits = context_.limits;
  EMBERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine_.OpenSession(options));
  EMBERKV_RETURN_IF_ERROR(Prefill(session.get(), answer));

  GenerateOptions generate = request_.options;
  generate.cancel = &halt_;
  // Answers to one prompt differ, and each is the same every time.
  generate.sampler.seed += answer->index % static_cast<size_t>(request_.n);
  generate.on_token = [&](const SampledToken& sampled) { TakeToken(sampled, answer); };
  generate.on_text = [&](std::string_view text) {
    std::vector<AnswerDelta> deltas = answer->stream.Push(text);
    if (!deltas.empty()) Post(answer, std::move(deltas));
  };
  EMBERKV_ASSIGN_OR_RETURN(const Generation generation, session->Generate(generate));
  if (generation.finish_reason == FinishReason::kCancelled && !must_stop()) return Cancelled("stopped");
  std::vector<AnswerDelta> rest = answer->stream.Finish();
  answer->finish_reason = FinishText(*answer, generation.finish_reason);
  Post(answer, std::move(rest), answer->finish_reason);
  return Status::Ok();
}

Status GenerationRun::Prefill(Session* session, Answer* answer) {
  const auto n = static_cast<size_t>(request_.n);
  const std::vector<int32_t>& prompt = request_.prompts[answer->index / n];
  const auto size = static_cast<int64_t>(prompt.size());
  const bool shows_progress = answer->index % n == 0;
  int64_t shown = 0;
  const auto show = [&](int64_t tokens) {
    if (shows_progress) context_.progress->prefilled_tokens += tokens - std::exchange(shown, tokens);
  };
  PrefillOptions options;
  options.replay = request_.replay;
  options.cancel = &halt_;
  options.progress = [&](int64_t done, int64_t total) {
    show(std::max<int64_t>(0, size - (total - done)));
    LookOut();
  };
  EMBERKV_RETURN_IF_ERROR(session->Prefill(prompt, options));
  show(size);
  answer->reuse = session->stats().reuse;
  answer->is_prefilled = true;
  return Status::Ok();
}

void GenerationRun::TakeToken(const SampledToken& sampled, Answer* answer) {
  answer->last_token = Clock::now();
  const bool is_first = answer->output_tokens++ == 0;
  ++context_.progress->output_tokens;
  const bool is_reasoning = request_.is_thinking && !answer->has_thought;
  if (is_reasoning) {
    ++answer->reasoning_tokens;
    answer->has_thought = sampled.token == request_.think_end_token;
  }
  if (request_.options.top_logprobs && sampled.token != eos_token_) answer->tokens.push_back({sampled, is_reasoning});
  if (is_first) {
    answer->first_token = answer->last_token;
    context_.progress->phase = GenerationProgress::Phase::kDecode;
    Post(answer, {});
  }
  LookOut();
}

// Hands over what is certain, with the tokens since the last time.
void GenerationRun::Post(Answer* answer, std::vector<AnswerDelta> deltas, std::string finish_reason) {
  Posted posted{answer->index, {std::move(deltas), {}, std::move(finish_reason)}};
  // Tokens go with their text.
  if (!posted.piece.deltas.empty() || !posted.piece.finish_reason.empty()) posted.piece.tokens.swap(answer->tokens);
  std::unique_lock<std::mutex> lock(mutex_);
  pieces_.push_back(std::move(posted));
  if (!std::exchange(is_sending_, true)) SendPieces(&lock, false);
}

std::string GenerationRun::FinishText(const Answer& answer, FinishReason reason) const {
  switch (reason) {
    case FinishReason::kEos:
    case FinishReason::kStop:
      return answer.stream.has_calls() ? "tool_calls" : "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      break;
  }
  return "insufficient_system_resource";  // DeepSeek's word for an answer that the server breaks off
}

// Between two steps: is anybody still interested?
void GenerationRun::LookOut() {
  if (is_gone() || must_stop()) halt_ = true;
}

void GenerationRun::SendPieces(std::unique_lock<std::mutex>* lock, bool may_wait) {
  do {
    std::vector<Posted> pieces = std::exchange(pieces_, {});
    lock->unlock();
    for (Posted& posted : pieces) writer_->Add(posted.answer, std::move(posted.piece));
    const bool can_send = may_wait || writer_->HasRoom();
    if (can_send && !was_given_up_) NoteSent(writer_->Flush());
    lock->lock();
    if (!can_send) {
      must_wait_ = true;
      caller_.notify_one();
      return;
    }
  } while (!pieces_.empty());
  is_sending_ = false;
}

void GenerationRun::NoteSent(bool is_sent) {
  sent_ = Clock::now();
  if (is_sent) return;
  was_given_up_ = true;
  halt_ = true;
}

void GenerationRun::LookAfterAnswers() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (num_running_ > 0 || must_wait_) {
    caller_.wait_for(lock, kLookInterval, [&] { return num_running_ == 0 || must_wait_; });
    LookOut();
    if (std::exchange(must_wait_, false)) {
      SendPieces(&lock, true);
    } else if (!is_sending_ && !was_given_up_ && Clock::now() - sent_ >= kKeepAliveInterval) {
      is_sending_ = true;
      lock.unlock();
      NoteSent(writer_->KeepAlive());
      lock.lock();
      SendPieces(&lock, true);
    }
  }
}

void GenerationRun::CountPrompts(GenerationOutcome* outcome) const {
  const auto n = static_cast<size_t>(request_.n);
  for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    const Answer* first = nullptr;  // that which computed what the others found
    for (size_t i = prompt * n; i < (prompt + 1) * n; ++i) {
      const Answer& answer = answers_[i];
      if (!answer.is_prefilled) continue;
      const auto rank = [](const Answer& a) { return std::pair(a.reuse.hit_tokens, -static_cast<double>(a.reuse.bytes_read)); };
      if (first == nullptr || rank(answer) < rank(*first)) first = &answer;
    }
    if (first == nullptr) continue;
    const ReuseStats& reuse = first->reuse;
    outcome->prompt_tokens += static_cast<int64_t>(request_.prompts[prompt].size());
    outcome->hit_tokens += reuse.hit_tokens;
    outcome->replayed_tokens += reuse.replayed_tokens;
    outcome->resident_blocks += reuse.resident_blocks;
    outcome->store_blocks += reuse.store_blocks;
    outcome->bytes_read += reuse.bytes_read;
    outcome->restore_seconds += reuse.restore_seconds;
    if (outcome->replayed_at == 0) outcome->replayed_at = reuse.replayed_at;
    if (!outcome->miss_reason.empty()) continue;
    if (reuse.miss_reason.empty()) {
      outcome->miss_reason = "full replay";  // nothing was looked up
    } else if (reuse.miss_reason != "none") {
      outcome->miss_reason = reuse.miss_reason;
    }
  }
}

void GenerationRun::CountAnswers(GenerationOutcome* outcome) const {
  std::optional<Clock::time_point> first;
  Clock::time_point last;
  for (const Answer& answer : answers_) {
    if (answer.output_tokens == 0) continue;
    outcome->completion_tokens += answer.output_tokens;
    outcome->reasoning_tokens += answer.reasoning_tokens;
    first = std::min(first.value_or(answer.first_token), answer.first_token);
    last = std::max(last, answer.last_token);
  }
  outcome->finish_reason = answers_.front().finish_reason;
  if (!first) return;
  outcome->ttft_seconds = Seconds(*first - context_.arrived);
  outcome->decode_seconds = Seconds(last - *first);
}

void GenerationRun::Settle(GenerationOutcome* outcome) const {
  const Clock::duration age = Clock::now() - context_.arrived;
  outcome->total_seconds = Seconds(age);
  outcome->arrived_us = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::system_clock::now().time_since_epoch() - age)
                            .count();
  outcome->cost = CostOf(*context_.prices, outcome->arrived_us, outcome->prompt_tokens, outcome->hit_tokens,
                         outcome->completion_tokens);
}

// What the client is told in place of an answer; *log gets what really happened.
std::optional<ApiError> GenerationRun::Failure(std::string* log) const {
  if (was_given_up_ || is_gone()) {
    *log = is_gone() ? "the client went away" : "the client does not read";
    return ApiError{499, *log, "", ""};
  }
  bool was_cancelled = false;
  for (const Answer& answer : answers_) {
    if (answer.status.ok()) {
      was_cancelled = was_cancelled || answer.finish_reason.empty();
      continue;
    }
    was_cancelled = true;
    if (answer.status.code() == StatusCode::kCancelled) continue;
    *log = answer.status.ToString();
    return ErrorOf(answer.status);
  }
  if (!was_cancelled) return std::nullopt;
  *log = "the server is shutting down";
  return ApiError{503, *log, "", ""};
}

}  // namespace

int64_t GenerationRequest::prompt_tokens() const {
  return std::accumulate(prompts.begin(), prompts.end(), int64_t{0}, [](int64_t sum, const std::vector<int32_t>& prompt) {
    return sum + static_cast<int64_t>(prompt.size());
  });
}

std::vector<int64_t> GenerationRequest::SessionSizes() const {
  std::vector<int64_t> sizes;
  for (const std::vector<int32_t>& prompt : prompts) {
    const int64_t size = static_cast<int64_t>(prompt.size()) + options.max_tokens;
    sizes.insert(sizes.end(), static_cast<size_t>(n), std::min(size, max_context));
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.resize(std::min(sizes.size(), kMaxParallelAnswers));
  return sizes;
}

int64_t GenerationRequest::TokensNeeded() const {
  const std::vector<int64_t> sizes = SessionSizes();
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

int64_t GenerationRequest::PagesNeeded(const MemoryPlan& plan) const {
  int64_t pages = 0;
  for (const int64_t size : SessionSizes()) pages += plan.PagesOf(size);
  return pages;
}

GenerationOutcome RunGeneration(const GenerationRequest& request, const GenerationContext& context,
                                const Engine& engine, ReplyChannel* channel) {
  return GenerationRun(request, context, engine, channel).Run();
}

}  // namespace emberkv
