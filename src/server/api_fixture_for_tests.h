// What the tests of the API share: the small model, loaded once, and a client that stands in for a connection.
//
// The model is for any thread; a FakeClient is the test's, but for what ReplyChannel allows.
#pragma once

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/generation.h"
#include "server/reply_channel.h"
#include "server/served_model.h"

namespace emberkv {

// The engine of the tests: ember-tiny with room for a few sessions.
inline std::unique_ptr<Engine> LoadSmallEngine(size_t kv_budget_bytes = size_t{24} << 20) {
  EngineOptions options;
  options.model_dir = EMBERKV_SOURCE_DIR "/models/ember-tiny";
  options.kv_budget_bytes = kv_budget_bytes;
  options.max_context = 4096;
  options.num_threads = 1;
  Result<std::unique_ptr<Engine>> engine = Engine::Load(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

inline const ServedModel& SmallModel() {
  static const std::unique_ptr<Engine> engine = LoadSmallEngine();
  static const ServedModel model = DescribeModel(*engine, "ember-tiny");
  return model;
}

// Keeps what it is sent. `on_write` is called with each piece of a stream and may set is_gone.
class FakeClient final : public ReplyChannel {
 public:
  bool Reply(int reply_status, const HttpHeaders& reply_headers, std::string text) override {
    if (is_gone) return false;
    EXPECT_EQ(status, 0) << "answered twice";
    status = reply_status;
    headers = reply_headers;
    body = std::move(text);
    return true;
  }
  bool BeginStream(int reply_status, const HttpHeaders& reply_headers) override {
    return Reply(reply_status, reply_headers, "");
  }
  bool Write(std::string_view text) override {
    if (is_gone) return false;
    EXPECT_FALSE(has_ended);
    body += text;
    if (on_write) on_write();
    return !is_gone;
  }
  void EndStream() override { has_ended = true; }
  const std::atomic<bool>& gone() const override { return is_gone; }

  nlohmann::ordered_json Json() const { return nlohmann::ordered_json::parse(body); }

  // The data of a stream's events, without comments; "[DONE]" as text.
  std::vector<nlohmann::ordered_json> Events() const {
    std::vector<nlohmann::ordered_json> events;
    std::string_view rest = body;
    for (size_t end; (end = rest.find("\n\n")) != std::string_view::npos; rest.remove_prefix(end + 2)) {
      std::string_view event = rest.substr(0, end);
      if (event.starts_with(':')) continue;
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      event.remove_prefix(6);
      events.push_back(event == "[DONE]" ? nlohmann::ordered_json(event) : nlohmann::ordered_json::parse(event));
    }
    EXPECT_TRUE(rest.empty()) << rest;
    return events;
  }

  std::atomic<bool> is_gone{false};
  std::function<void()> on_write;
  int status = 0;
  HttpHeaders headers;
  std::string body;
  bool has_ended = false;
};

// One request from its body to its outcome, as the server runs it.
struct ApiRun {
  explicit ApiRun(const ServedModel& served = SmallModel()) : model(served) {}

  void Chat(std::string_view text) { Run(ReadChatRequest(text, model, &request)); }
  void Complete(std::string_view text) { Run(ReadCompletionRequest(text, model, &request)); }

  void Run(const std::optional<ApiError>& error) {
    ASSERT_FALSE(error) << error->message;
    GenerationContext context;
    context.request_id = "req-1";
    context.model_name = model.name;
    context.tenant = tenant;
    context.arrived = std::chrono::steady_clock::now();
    context.prices = &prices;
    context.progress = &progress;
    context.stop = &stop;
    outcome = RunGeneration(request, context, *model.engine, &client);
  }

  const ServedModel& model;
  std::string tenant;
  const PriceTable prices = PublishedPrices();
  GenerationRequest request;
  GenerationProgress progress;
  std::atomic<bool> stop{false};
  FakeClient client;
  GenerationOutcome outcome;
};

// A text with a fact in it, longer than `blocks` blocks of 128 tokens, and a question for the fact.
inline std::string FactText(int blocks, std::string_view code) {
  std::string text = fmt::format("The code for amber falcon is {}. ", code);
  for (int i = 0; i < blocks * 13; ++i) text += "The farmer walked past the old mill. The rain was cold. ";
  return text;
}
inline constexpr std::string_view kFactQuestion = "What is the code for amber falcon?";

}  // namespace emberkv
