#include "server/generation_route.h"

#include <spdlog/logger.h>

#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "ledger/trace_line.h"
#include "server/chat_request.h"
#include "server/completion_request.h"

namespace emberkv {
namespace {

// A request for text while it is in the server. Held by the queue, then by the thread that runs it.
class PendingGeneration {
 public:
  PendingGeneration(GenerationRequest request, std::shared_ptr<ApiCall> call,
                    std::shared_ptr<OpenRequest> open, Serving* serving)
      : request_(std::move(request)), call_(std::move(call)), open_(std::move(open)), serving_(serving) {}

  void Run() {
    const double queue_seconds = open_->seconds_since_arrival();
    GenerationOutcome outcome;
    try {
      outcome = RunGeneration(request_, Context(queue_seconds), *serving_->model.engine, call_.get());
    } catch (const std::exception& error) {  // no memory: the request fails, the server goes on
      outcome.http_status = 500;
      outcome.finish_reason = "error";
      outcome.error = error.what();
      outcome.total_seconds = open_->seconds_since_arrival();
      call_->ReplyError(ErrorOf(Internal(outcome.error)));
    }
    serving_->admission.Charge(*call_->tenant(), outcome.completion_tokens);
    if (serving_->files->trace && outcome.http_status == 200) Trace(outcome);
    serving_->requests.End(*open_, outcome, queue_seconds);
  }

  void Drop(const Refusal& refusal) {
    GenerationOutcome outcome;
    outcome.http_status = HttpStatusOf(refusal.reason);
    outcome.error = refusal.message;
    outcome.total_seconds = open_->seconds_since_arrival();
    HttpHeaders headers;
    if (refusal.retry_after_seconds > 0) {
      headers.emplace_back("Retry-After", std::to_string(refusal.retry_after_seconds));
    }
    if (refusal.reason != RefusalReason::kClientGone) {
      call_->ReplyError({outcome.http_status, refusal.message, "", RefusalReasonName(refusal.reason)},
                        headers);
    }
    serving_->requests.End(*open_, outcome, outcome.total_seconds);
  }

  QueuedWork Work(std::shared_ptr<PendingGeneration> self) const {
    QueuedWork work;
    work.tenant = call_->tenant();
    work.pages = request_.PagesNeeded(serving_->model.engine->memory_plan());
    work.prompt_tokens = request_.prompt_tokens();
    work.is_gone = &call_->gone();
    work.run = [self] { self->Run(); };
    work.drop = [self](const Refusal& refusal) { self->Drop(refusal); };
    return work;
  }

 private:
  GenerationContext Context(double queue_seconds) const {
    GenerationContext context;
    context.request_id = open_->id;
    context.model_name = serving_->model.name;
    context.tenant = open_->tenant;
    const TenantLimits& limits = call_->tenant()->limits;
    context.limits = {static_cast<uint64_t>(limits.max_stored_bytes), limits.retention};
    context.arrived = open_->arrived;
    context.queue_seconds = queue_seconds;
    context.prices = &serving_->files->prices;
    context.progress = &open_->progress;
    context.stop = &serving_->stops;
    return context;
  }

  // One line a prompt, so that `emberkv simulate` can replay it.
  void Trace(const GenerationOutcome& outcome) const {
    const Engine& engine = *serving_->model.engine;
    const auto num_prompts = static_cast<int64_t>(request_.prompts.size());
    for (const std::vector<int32_t>& prompt : request_.prompts) {
      TraceLine line;
      line.time_us = open_->arrived_us;
      line.tenant = open_->tenant;
      line.prompt_tokens = static_cast<int64_t>(prompt.size());
      line.completion_tokens = outcome.completion_tokens / num_prompts;
      line.block_size = engine.layout().block_size;
      const PrefixForecast forecast =
          engine.Forecast({open_->tenant, request_.cache_salt}, prompt, request_.replay);
      for (const BlockIdentity& block : forecast.blocks) {
        uint64_t id = 0;
        std::memcpy(&id, block.hash.bytes.data(), sizeof id);
        line.blocks.push_back(id);
      }
      serving_->files->trace->Append(TraceJson(line));
    }
  }

  const GenerationRequest request_;
  const std::shared_ptr<ApiCall> call_;
  const std::shared_ptr<OpenRequest> open_;
  Serving* const serving_;
};

}  // namespace

void AnswerGeneration(Endpoint endpoint, const std::shared_ptr<ApiCall>& call, Serving* serving) {
  const std::shared_ptr<OpenRequest> open =
      serving->requests.Begin(call->id(), call->tenant()->name, call->route(), call->arrived());
  GenerationRequest request;
  const std::string& body = call->request().body;
  const std::optional<ApiError> error = endpoint == Endpoint::kChat
                                            ? ReadChatRequest(body, serving->model, &request)
                                            : ReadCompletionRequest(body, serving->model, &request);
  if (error) {
    GenerationOutcome outcome;
    outcome.http_status = error->http_status;
    outcome.error = error->message;
    outcome.total_seconds = open->seconds_since_arrival();
    call->ReplyError(*error);
    serving->requests.End(*open, outcome, 0);
    return;
  }
  open->progress.prompt_tokens = request.prompt_tokens();
  const auto pending = std::make_shared<PendingGeneration>(std::move(request), call, open, serving);
  const std::optional<Refusal> refusal = serving->admission.Submit(pending->Work(pending));
  if (refusal) pending->Drop(*refusal);
}

}  // namespace emberkv
