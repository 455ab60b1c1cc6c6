// Requests from body to answer, on the small model.
#include "server/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <thread>

#include "server/api_fixture_for_tests.h"

namespace emberkv {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// A chat about a text with a fact in it; `more` are fields of the body.
std::string ChatBody(const std::string& code, const Json& more = Json::object(), int blocks = 2) {
  Json body = {{"messages", {{{"role", "user"}, {"content", FactText(blocks, code) + std::string(kFactQuestion)}}}},
               {"temperature", 0}};
  body.update(more);
  return body.dump();
}

// The answer that the chunks of a stream add up to, in the form of a whole one.
Json Assemble(const std::vector<Json>& events) {
  Json whole;
  for (const Json& event : events) {
    if (event == "[DONE]") continue;
    whole["id"] = event["id"];
    if (event.contains("usage") && !event["usage"].is_null()) whole["usage"] = event["usage"];
    for (const Json& choice : event["choices"]) {
      Json& answer = whole["choices"][std::to_string(choice["index"].get<int>())];
      if (answer.is_null()) answer = Json::object();
      if (choice.contains("text")) answer["text"] = answer.value("text", "") + choice["text"].get<std::string>();
      for (const char* field : {"content", "reasoning_content"}) {
        if (!choice.contains("delta") || !choice["delta"].contains(field)) continue;
        answer[field] = answer.value(field, "") + choice["delta"][field].get<std::string>();
      }
      if (choice["logprobs"].is_object()) {
        for (const auto& [name, list] : choice["logprobs"].items()) {
          for (const Json& token : list) answer["logprobs"][name].push_back(token);
        }
      }
      if (choice["finish_reason"].is_string()) {
        EXPECT_FALSE(answer.contains("finish_reason"));
        answer["finish_reason"] = choice["finish_reason"];
      }
    }
  }
  return whole;
}

void ExpectUsageIs(const Json& usage, const GenerationOutcome& outcome) {
  EXPECT_EQ(usage["prompt_tokens"], outcome.prompt_tokens);
  EXPECT_EQ(usage["completion_tokens"], outcome.completion_tokens);
  EXPECT_EQ(usage["total_tokens"], outcome.prompt_tokens + outcome.completion_tokens);
  EXPECT_EQ(usage["prompt_cache_hit_tokens"].get<int64_t>() + usage["prompt_cache_miss_tokens"].get<int64_t>(),
            outcome.prompt_tokens);
  EXPECT_EQ(usage["prompt_cache_hit_tokens"], outcome.hit_tokens);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], outcome.hit_tokens);
}

TEST(Generation, AnswersAChat) {
  ApiRun run;
  run.Chat(ChatBody("482 913", {{"thinking", {{"type", "disabled"}}}}));
  EXPECT_EQ(run.client.status, 200);
  const Json json = run.client.Json();
  EXPECT_EQ(json["id"], "chatcmpl-1");
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "ember-tiny");
  ASSERT_EQ(json["choices"].size(), 1u);
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["message"].dump(), R"({"role":"assistant","content":"482 913."})");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_FALSE(json.contains("emberkv"));
  ExpectUsageIs(json["usage"], run.outcome);
  EXPECT_EQ(run.outcome.http_status, 200);
  EXPECT_EQ(run.outcome.error, "");
  EXPECT_EQ(run.outcome.prompt_tokens, static_cast<int64_t>(run.request.prompts[0].size()));
  EXPECT_EQ(run.outcome.reasoning_tokens, 0);
  EXPECT_GT(run.outcome.ttft_seconds, 0);
  EXPECT_EQ(run.progress.phase, GenerationProgress::Phase::kDone);
  EXPECT_EQ(run.progress.prefilled_tokens, run.outcome.prompt_tokens);
  EXPECT_EQ(run.progress.output_tokens, run.outcome.completion_tokens);
}

TEST(Generation, ThinkingIsReasoningContent) {
  ApiRun run;
  run.Chat(ChatBody("482 914", {{"reasoning_effort", "low"}}));
  const Json message = run.client.Json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "482 914.");
  EXPECT_EQ(message["reasoning_content"], "");  // the small model has nothing to think about
  EXPECT_EQ(run.client.Json()["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
}

TEST(Generation, AStreamAddsUpToTheWholeAnswer) {
  for (const bool is_chat : {true, false}) {
    for (const int n : {1, 3}) {
      Json more = {{"n", n}, {"seed", 5}, {"temperature", 1.2}, {"max_tokens", 24}};
      more["emberkv"]["replay"] = "exact";  // equal to the bit, whatever the caches hold
      more["logprobs"] = is_chat ? Json(true) : Json(2);
      if (is_chat) more["top_logprobs"] = 2;
      Json body = is_chat ? Json::parse(ChatBody("482 915", more))
                          : Json{{"prompt", FactText(1, "482 915") + "Question: " + std::string(kFactQuestion) + " A"}};
      body.update(more);
      ApiRun whole, stream;
      is_chat ? whole.Chat(body.dump()) : whole.Complete(body.dump());
      body["stream"] = true;
      body["stream_options"]["include_usage"] = true;
      is_chat ? stream.Chat(body.dump()) : stream.Complete(body.dump());

      const std::vector<Json> events = stream.client.Events();
      EXPECT_TRUE(stream.client.has_ended);
      EXPECT_EQ(events.back(), "[DONE]");
      const Json assembled = Assemble(events);
      const Json json = whole.client.Json();
      ASSERT_EQ(json["choices"].size(), static_cast<size_t>(n));
      for (int i = 0; i < n; ++i) {
        const Json& answer = assembled.at("choices").at(std::to_string(i));
        const Json& choice = json["choices"][i];
        if (is_chat) {
          EXPECT_EQ(answer["content"], choice["message"]["content"]);
          EXPECT_EQ(answer.value("reasoning_content", ""), choice["message"]["reasoning_content"]);
          for (const char* name : {"content", "reasoning_content"}) {
            const Json none;
            const auto found = answer["logprobs"].find(name);
            EXPECT_EQ(found == answer["logprobs"].end() ? none : *found, choice["logprobs"][name]) << name;
          }
        } else {
          EXPECT_EQ(answer["text"], choice["text"]);
          EXPECT_EQ(answer["logprobs"], choice["logprobs"]);
        }
        EXPECT_EQ(answer["finish_reason"], choice["finish_reason"]);
      }
      ExpectUsageIs(assembled["usage"], stream.outcome);
      EXPECT_EQ(stream.outcome.completion_tokens, whole.outcome.completion_tokens);
    }
  }
}

TEST(Generation, AStreamBeginsWithTheRoleAndEndsWithTheUsage) {
  ApiRun run;
  run.Chat(ChatBody("482 916", {{"stream", true}, {"stream_options", {{"include_usage", true}}},
                                {"thinking", {{"type", "disabled"}}}}));
  const std::vector<Json> events = run.client.Events();
  ASSERT_GE(events.size(), 5u);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"].dump(), R"({"role":"assistant","content":""})");
  EXPECT_TRUE(events[0]["usage"].is_null());
  const Json& finish = events[events.size() - 3];
  EXPECT_EQ(finish["choices"][0]["delta"].dump(), "{}");
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "stop");
  const Json& last = events[events.size() - 2];
  EXPECT_TRUE(last["choices"].empty());
  ExpectUsageIs(last["usage"], run.outcome);
  EXPECT_THAT(run.client.headers, ::testing::Contains(HttpHeaders::value_type{"Content-Type", "text/event-stream"}));
}

TEST(Generation, WithoutTheOptionAStreamHasNoUsage) {
  ApiRun run;
  run.Chat(ChatBody("482 916", {{"stream", true}}));
  for (const Json& event : run.client.Events()) EXPECT_TRUE(event == "[DONE]" || !event.contains("usage"));
}

TEST(Generation, Case_M01_HitAndMissMakeThePromptAndTheTraceSaysWhy) {
  const std::string body = ChatBody("482 917", {{"emberkv", {{"trace", true}}}, {"stream", true}});
  ApiRun cold, warm;
  cold.Chat(body);
  EXPECT_EQ(cold.outcome.hit_tokens, 0);
  const Json miss = cold.client.Events().rbegin()[1]["emberkv"];
  EXPECT_EQ(miss["miss_reason"], "not resident");
  EXPECT_EQ(miss["cost"]["saved_usd"], 0);
  warm.Chat(body);
  EXPECT_GE(warm.outcome.hit_tokens, 256);
  EXPECT_EQ(warm.outcome.hit_tokens % 128, 0);
  const Json trace = warm.client.Events().rbegin()[1]["emberkv"];
  EXPECT_EQ(trace["hit_tokens"], warm.outcome.hit_tokens);
  EXPECT_EQ(trace["computed_tokens"], warm.outcome.miss_tokens());
  EXPECT_EQ(trace["tiers"]["resident_blocks"], warm.outcome.hit_tokens / 128);
  EXPECT_EQ(trace["tiers"]["store_blocks"], 0);
  EXPECT_TRUE(trace["miss_reason"].is_null());
  EXPECT_GT(trace["cost"]["saved_usd"], 0);
  EXPECT_EQ(Assemble(cold.client.Events())["choices"], Assemble(warm.client.Events())["choices"]);
}

TEST(Generation, Case_T01_AnotherTenantUserOrSaltFindsNothing) {
  const auto hits = [](const std::string& tenant, const Json& more) {
    ApiRun run;
    run.tenant = tenant;
    run.Chat(ChatBody("482 918", more));
    EXPECT_EQ(run.client.status, 200);
    return run.outcome.hit_tokens;
  };
  EXPECT_EQ(hits("a", Json::object()), 0);
  EXPECT_GT(hits("a", Json::object()), 0);
  EXPECT_EQ(hits("b", Json::object()), 0);
  EXPECT_EQ(hits("a", {{"user", "ann"}}), 0);
  EXPECT_GT(hits("a", {{"user_id", "ann"}}), 0);
  EXPECT_EQ(hits("a", {{"emberkv", {{"cache_salt", "s"}}}}), 0);
  EXPECT_EQ(hits("c", {{"emberkv", {{"no_store", true}}}}), 0);
  EXPECT_EQ(hits("c", {{"emberkv", {{"no_store", true}}}}), 0);
  EXPECT_EQ(hits("c", Json::object()), 0);
}

TEST(Generation, ReplayIsTheClientsChoice) {
  ApiRun first, full;
  first.Chat(ChatBody("482 919"));
  full.Chat(ChatBody("482 919", {{"emberkv", {{"replay", "full"}, {"trace", true}}}}));
  EXPECT_EQ(full.outcome.hit_tokens, 0);
  EXPECT_EQ(full.client.Json()["emberkv"]["miss_reason"], "full replay");
}

TEST(Generation, SeveralAnswersShareThePrompt) {
  ApiRun run;
  run.Chat(ChatBody("482 920", {{"n", 4}, {"temperature", 1.5}, {"seed", 1}, {"max_tokens", 8}}));
  EXPECT_EQ(run.outcome.prompt_tokens, static_cast<int64_t>(run.request.prompts[0].size()));
  EXPECT_EQ(run.outcome.hit_tokens, 0);  // of the answer that computed what the others found
  std::set<std::string> contents;
  const Json json = run.client.Json();
  for (const Json& choice : json["choices"]) contents.insert(choice["message"]["content"]);
  EXPECT_GT(contents.size(), 1u);
}

TEST(Generation, SeveralPromptsAreSummedUp) {
  ApiRun run;
  run.Complete(Json{{"prompt", {"The mill.", "The rain was cold and"}}, {"n", 2}, {"max_tokens", 3}}.dump());
  const Json json = run.client.Json();
  ASSERT_EQ(json["choices"].size(), 4u);
  EXPECT_EQ(json["choices"][3]["index"], 3);
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(run.outcome.prompt_tokens, run.request.prompt_tokens());
  EXPECT_LE(run.outcome.completion_tokens, 12);
  ExpectUsageIs(json["usage"], run.outcome);
}

TEST(Generation, MoreAnswersThanRunAtOnceAreAllGiven) {
  ApiRun run;
  run.Complete(Json{{"prompt", {"The mill.", "The rain"}}, {"n", 16}, {"max_tokens", 2}}.dump());
  EXPECT_EQ(run.client.Json()["choices"].size(), 32u);
}

TEST(Generation, LengthAndStopStringsEndAnAnswer) {
  const Json chat = {{"thinking", {{"type", "disabled"}}}};
  ApiRun length;
  Json more = chat;
  more["max_tokens"] = 2;
  length.Chat(ChatBody("482 921", more));
  EXPECT_EQ(length.client.Json()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(length.outcome.completion_tokens, 2);
  ApiRun stop;
  more = chat;
  more["stop"] = {"zzz", " 921"};
  stop.Chat(ChatBody("482 921", more));
  EXPECT_EQ(stop.client.Json()["choices"][0]["message"]["content"], "482");
  EXPECT_EQ(stop.client.Json()["choices"][0]["finish_reason"], "stop");
}

TEST(Generation, LogprobsNameEveryTokenButTheEnd) {
  ApiRun run;
  run.Chat(ChatBody("482 922", {{"logprobs", true}, {"top_logprobs", 3}, {"thinking", {{"type", "disabled"}}}}));
  const Json logprobs = run.client.Json()["choices"][0]["logprobs"];
  EXPECT_TRUE(logprobs["reasoning_content"].is_null());
  std::string text;
  for (const Json& token : logprobs["content"]) {
    text += token["token"];
    std::string bytes;
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
    EXPECT_EQ(bytes, token["token"]);
    EXPECT_LE(token["logprob"], 0);
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);  // greedy takes the likeliest
  }
  EXPECT_EQ(text, "482 922.");
  ApiRun legacy;
  legacy.Complete(Json{{"prompt", "The"}, {"logprobs", 2}, {"max_tokens", 3}, {"temperature", 0}}.dump());
  const Json old = legacy.client.Json()["choices"][0]["logprobs"];
  EXPECT_EQ(old["tokens"].size(), old["token_logprobs"].size());
  EXPECT_EQ(old["text_offset"][0], 0);
  EXPECT_EQ(old["top_logprobs"][0].size(), 2u);
}

TEST(Generation, Case_R04_AClientThatLeavesEndsTheWork) {
  ApiRun stream;
  stream.client.on_write = [&] { stream.client.is_gone = true; };
  stream.Chat(ChatBody("482 923", {{"stream", true}, {"n", 3}, {"temperature", 2}, {"max_tokens", 3000}}));
  EXPECT_EQ(stream.outcome.http_status, 499);
  EXPECT_LT(stream.outcome.completion_tokens, 1000);
  EXPECT_THAT(stream.outcome.error, HasSubstr("went away"));
  ApiRun early;
  early.client.is_gone = true;
  early.Chat(ChatBody("482 924"));
  EXPECT_EQ(early.outcome.http_status, 499);
  EXPECT_EQ(early.client.status, 0);
  EXPECT_EQ(early.outcome.prompt_tokens, early.outcome.hit_tokens + early.outcome.miss_tokens());
  const EngineCacheStats after = SmallModel().engine->cache_stats();
  EXPECT_EQ(after.pages.pinned_pages, 0u);
}

// A client whose connection is full: what it is sent waits until the model has written the whole answer.
class FullClient final : public ReplyChannel {
 public:
  explicit FullClient(std::function<bool()> is_written) : is_written_(std::move(is_written)) {}

  bool Reply(int, const HttpHeaders&, std::string) override { return false; }
  bool BeginStream(int, const HttpHeaders&) override { return true; }
  bool Write(std::string_view text) override {
    EXPECT_EQ(std::this_thread::get_id(), reader_);
    while (!is_written_()) std::this_thread::yield();
    ++num_writes;
    body += text;
    return true;
  }
  void EndStream() override {}
  bool HasRoom(size_t) const override { return false; }
  const std::atomic<bool>& gone() const override { return gone_; }

  int num_writes = 0;
  std::string body;

 private:
  const std::function<bool()> is_written_;
  const std::thread::id reader_ = std::this_thread::get_id();
  const std::atomic<bool> gone_{false};
};

TEST(Generation, AClientThatMustBeWaitedForHoldsUpNoComputing) {
  ApiRun waiting;
  const Json body = {{"prompt", "The"}, {"stream", true}, {"temperature", 0}, {"max_tokens", 200}};
  ASSERT_FALSE(ReadCompletionRequest(body.dump(), waiting.model, &waiting.request));
  FullClient client([&] { return waiting.progress.output_tokens == 200; });
  GenerationContext context;
  context.request_id = "req-1";
  context.prices = &waiting.prices;
  context.progress = &waiting.progress;
  EXPECT_EQ(RunGeneration(waiting.request, context, *waiting.model.engine, &client).http_status, 200);
  // The first piece that waited, the answer's last pieces if the model was not quite done, and the end.
  EXPECT_LE(client.num_writes, 4);
  ApiRun quick;
  quick.Complete(body.dump());
  FakeClient slow;
  slow.body = client.body;
  const auto text = [](const FakeClient& read) {
    std::string all;
    for (const Json& event : read.Events()) {
      if (event != "[DONE]") all += event["choices"][0]["text"];
    }
    return all;
  };
  EXPECT_EQ(text(slow), text(quick.client));
}

// Events are put together as text: it must be what a document would be.
TEST(Generation, AnEventIsOneLineOfJson) {
  ApiRun run;
  run.Complete(Json{{"prompt", "The"}, {"stream", true}, {"temperature", 0}, {"max_tokens", 1},
                    {"stream_options", {{"include_usage", true}}}}.dump());
  Json event = run.client.Events().front();
  const std::string text = event["choices"][0]["text"];
  EXPECT_NE(text, "");
  const std::string created = event["created"].dump();
  EXPECT_EQ(event.dump(), R"({"id":"cmpl-1","object":"text_completion","created":)" + created +
                              R"(,"model":"ember-tiny","choices":[{"index":0,"text":)" + Json(text).dump() +
                              R"(,"logprobs":null,"finish_reason":null}],"usage":null})");
}

TEST(Generation, AServerThatEndsGivesWhatThereIs) {
  ApiRun run;
  run.client.on_write = [&] { run.stop = true; };
  // The model goes on with a text like those it learnt from until it is stopped.
  run.Complete(Json{{"prompt", "The"}, {"stream", true}, {"temperature", 0}, {"max_tokens", 3000}}.dump());
  const std::vector<Json> events = run.client.Events();
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events.rbegin()[1]["choices"][0]["finish_reason"], "insufficient_system_resource");
  EXPECT_EQ(run.outcome.http_status, 200);
  ApiRun early;
  early.stop = true;
  early.Chat(ChatBody("482 926"));
  EXPECT_EQ(early.client.status, 503);
  EXPECT_EQ(early.outcome.http_status, 503);
  EXPECT_EQ(early.client.Json()["error"]["message"], "the server is shutting down");
}

TEST(Generation, WithoutPagesTheAnswerIs503) {
  const std::unique_ptr<Engine> engine = LoadSmallEngine(8 * SmallModel().engine->layout().page_bytes);
  const ServedModel small = DescribeModel(*engine, "ember-tiny");
  for (const bool streams : {false, true}) {
    ApiRun run(small);
    run.Chat(ChatBody("482 927", {{"stream", streams}}, 20));
    EXPECT_EQ(run.client.status, 503);
    EXPECT_EQ(run.client.Json()["error"]["type"], "overloaded_error");
    EXPECT_THAT(run.client.headers, ::testing::Contains(HttpHeaders::value_type{"Retry-After", "1"}));
    EXPECT_EQ(run.outcome.http_status, 503);
    EXPECT_NE(run.outcome.error, "");
    EXPECT_EQ(run.outcome.finish_reason, "error");
  }
}

}  // namespace
}  // namespace emberkv
