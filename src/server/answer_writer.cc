#include "server/answer_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "server/usage_json.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// What both ways of answering share.
class ReplyForm {
 public:
  ReplyForm(const GenerationRequest& request, const GenerationContext& context, const Engine& engine)
      : request_(request),
        context_(context),
        engine_(engine),
        suffix_(context.request_id.substr(context.request_id.starts_with("req-") ? 4 : 0)),
        created_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  bool is_chat() const { return request_.endpoint == Endpoint::kChat; }

  Json Envelope() const {
    Json json;
    json["id"] = (is_chat() ? "chatcmpl-" : "cmpl-") + suffix_;
    json["object"] = !is_chat() ? "text_completion" : request_.streams ? "chat.completion.chunk" : "chat.completion";
    json["created"] = created_;
    json["model"] = context_.model_name;
    json["choices"] = Json::array();
    return json;
  }

  std::string CallId(size_t answer, int call) const { return fmt::format("call_{}_{}_{}", suffix_, answer, call); }

  // *offset as CompletionLogprobs has it.
  Json Logprobs(const std::vector<ReportedToken>& tokens, int64_t* offset) const {
    if (!request_.options.top_logprobs || tokens.empty()) return nullptr;
    return is_chat() ? ChatLogprobs(engine_, tokens) : CompletionLogprobs(engine_, tokens, offset);
  }

  static bool ReplyError(const ApiError& error, ReplyChannel* channel) {
    HttpHeaders headers = {{"Content-Type", "application/json"}};
    if (error.http_status == 503) headers.emplace_back("Retry-After", "1");
    return channel->Reply(error.http_status, headers, ErrorJson(error));
  }

  const GenerationRequest& request() const { return request_; }
  const GenerationContext& context() const { return context_; }

 private:
  const GenerationRequest& request_;
  const GenerationContext& context_;
  const Engine& engine_;
  const std::string suffix_;
  const int64_t created_;
};

class DocumentWriter final : public AnswerWriter {
 public:
  DocumentWriter(ReplyForm form, ReplyChannel* channel)
      : form_(std::move(form)), channel_(channel), answers_(form_.request().num_answers()) {}

  void Add(size_t index, AnswerPiece piece) override {
    Answer& answer = answers_[index];
    for (AnswerDelta& delta : piece.deltas) {
      switch (delta.kind) {
        case AnswerDelta::Kind::kReasoning:
          answer.reasoning += delta.text;
          break;
        case AnswerDelta::Kind::kContent:
          answer.content += delta.text;
          break;
        case AnswerDelta::Kind::kCall:
          answer.calls.push_back({std::move(delta.text), ""});
          break;
        case AnswerDelta::Kind::kArguments:
          answer.calls.back().arguments += delta.text;
          break;
      }
    }
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(answer.tokens));
    answer.finish_reason += piece.finish_reason;
  }

  bool HasRoom() const override { return true; }
  bool Flush() override { return true; }
  bool KeepAlive() override { return true; }

  bool Finish(const GenerationOutcome& outcome) override {
    Json json = form_.Envelope();
    for (size_t i = 0; i < answers_.size(); ++i) json["choices"].push_back(Choice(i));
    json["usage"] = UsageJson(outcome);
    if (form_.request().wants_trace) json["emberkv"] = TraceJson(outcome, form_.context());
    return channel_->Reply(200, {{"Content-Type", "application/json"}}, Dump(json));
  }

  bool Fail(const ApiError& error) override { return ReplyForm::ReplyError(error, channel_); }

 private:
  struct Call {
    std::string name;
    std::string arguments;
  };

  struct Answer {
    std::string reasoning;
    std::string content;
    std::vector<Call> calls;
    std::vector<ReportedToken> tokens;
    std::string finish_reason;
  };

  Json Choice(size_t index) const {
    const Answer& answer = answers_[index];
    Json choice;
    choice["index"] = index;
    if (form_.is_chat()) {
      choice["message"] = Message(index);
    } else {
      choice["text"] = answer.content;
    }
    int64_t offset = 0;
    choice["logprobs"] = form_.Logprobs(answer.tokens, &offset);
    choice["finish_reason"] = answer.finish_reason;
    return choice;
  }

  Json Message(size_t index) const {
    const Answer& answer = answers_[index];
    Json message;
    message["role"] = "assistant";
    message["content"] = answer.content;
    if (form_.request().is_thinking) message["reasoning_content"] = answer.reasoning;
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      message["tool_calls"].push_back(
          {{"id", form_.CallId(index, static_cast<int>(i))},
           {"type", "function"},
           {"function", {{"name", answer.calls[i].name}, {"arguments", answer.calls[i].arguments}}}});
    }
    return message;
  }

  const ReplyForm form_;
  ReplyChannel* const channel_;
  std::vector<Answer> answers_;
};

// Server-sent events. The stream begins with the first thing to say, so that what fails before has a status.
//
// There is an event for every token: of its JSON only what differs is made anew, and put together as text.
class EventWriter final : public AnswerWriter {
 public:
  EventWriter(ReplyForm form, ReplyChannel* channel)
      : form_(std::move(form)), channel_(channel), answers_(form_.request().num_answers()) {
    constexpr std::string_view kNoChoices = "]}";
    event_begin_ = "data: " + Dump(form_.Envelope());
    event_begin_.resize(event_begin_.size() - kNoChoices.size());
    event_end_ = form_.request().includes_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
  }

  void Add(size_t index, AnswerPiece piece) override {
    Answer& answer = answers_[index];
    if (!std::exchange(answer.has_begun, true) && form_.is_chat()) {
      AddChoice(index, R"({"role":"assistant","content":""})", "null", "");
    }
    std::string logprobs = Dump(form_.Logprobs(piece.tokens, &answer.offset));
    for (const AnswerDelta& delta : piece.deltas) {
      AddChoice(index, DeltaJson(index, delta), std::exchange(logprobs, "null"), "");
    }
    if (!piece.finish_reason.empty()) {
      AddChoice(index, form_.is_chat() ? "{}" : R"("")", logprobs, piece.finish_reason);
    }
  }

  bool HasRoom() const override { return channel_->HasRoom(unsent_.size()); }

  bool Flush() override {
    if (unsent_.empty()) return true;
    const bool is_sent = Send(unsent_);
    unsent_.clear();
    return is_sent;
  }

  bool KeepAlive() override { return Send(": keep-alive\n\n"); }

  bool Finish(const GenerationOutcome& outcome) override {
    const GenerationRequest& request = form_.request();
    std::string events;
    if (request.includes_usage || request.wants_trace) {
      Json json = form_.Envelope();
      if (request.includes_usage) json["usage"] = UsageJson(outcome);
      if (request.wants_trace) json["emberkv"] = TraceJson(outcome, form_.context());
      events += Event(json);
    }
    return Send(events + "data: [DONE]\n\n") && End();
  }

  bool Fail(const ApiError& error) override {
    if (!has_begun_) return ReplyForm::ReplyError(error, channel_);
    return Send("data: " + ErrorJson(error) + "\n\n") && End();
  }

 private:
  struct Answer {
    bool has_begun = false;
    int64_t offset = 0;
  };

  static std::string Event(const Json& json) { return "data: " + Dump(json) + "\n\n"; }

  // The delta of a chat, the text of a completion.
  std::string DeltaJson(size_t index, const AnswerDelta& delta) const {
    if (!form_.is_chat()) return Dump(delta.text);
    switch (delta.kind) {
      case AnswerDelta::Kind::kReasoning:
        return "{\"reasoning_content\":" + Dump(delta.text) + "}";
      case AnswerDelta::Kind::kContent:
        return "{\"content\":" + Dump(delta.text) + "}";
      default:
        break;
    }
    Json call = {{"index", delta.call}};
    if (delta.kind == AnswerDelta::Kind::kCall) {
      call["id"] = form_.CallId(index, delta.call);
      call["type"] = "function";
      call["function"] = {{"name", delta.text}, {"arguments", ""}};
    } else {
      call["function"] = {{"arguments", delta.text}};
    }
    Json json;
    json["tool_calls"].push_back(std::move(call));
    return Dump(json);
  }

  // `delta` and `logprobs` are JSON; `finish_reason` is a word or empty.
  void AddChoice(size_t index, std::string_view delta, std::string_view logprobs, std::string_view finish_reason) {
    const std::string_view quote = finish_reason.empty() ? "" : "\"";
    if (finish_reason.empty()) finish_reason = "null";
    fmt::format_to(std::back_inserter(unsent_),
                   R"({}{{"index":{},"{}":{},"logprobs":{},"finish_reason":{}{}{}}}{})", event_begin_, index,
                   form_.is_chat() ? "delta" : "text", delta, logprobs, quote, finish_reason, quote, event_end_);
  }

  bool Send(const std::string& events) {
    if (!std::exchange(has_begun_, true)) {
      const HttpHeaders headers = {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}};
      if (!channel_->BeginStream(200, headers)) return false;
    }
    return channel_->Write(events);
  }

  bool End() {
    channel_->EndStream();
    return true;
  }

  const ReplyForm form_;
  ReplyChannel* const channel_;
  std::string event_begin_;  // of an event with a choice: up to the choice, and what follows it
  std::string event_end_;
  std::vector<Answer> answers_;
  std::string unsent_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> AnswerWriter::Make(const GenerationRequest& request, const GenerationContext& context,
                                                 const Engine& engine, ReplyChannel* channel) {
  const ReplyForm form(request, context, engine);
  if (request.streams) return std::make_unique<EventWriter>(form, channel);
  return std::make_unique<DocumentWriter>(form, channel);
}

}  // namespace emberkv
