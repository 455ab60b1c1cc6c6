#include "server/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_fixture_for_tests.h"
#include "server/text_api.h"

namespace emberkv {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

GenerationRequest Read(const std::string& body) {
  GenerationRequest request;
  const std::optional<ApiError> error = ReadCompletionRequest(body, SmallModel(), &request);
  EXPECT_FALSE(error) << error->message << "\n" << body;
  return request;
}

ApiError Refusal(const std::string& body) {
  GenerationRequest request;
  const std::optional<ApiError> error = ReadCompletionRequest(body, SmallModel(), &request);
  EXPECT_TRUE(error) << body;
  return error.value_or(ApiError{0, "", "", ""});
}

TEST(CompletionRequest, TakesAllFourFormsOfAPrompt) {
  const GenerationRequest text = Read(R"({"prompt": "The mill"})");
  ASSERT_EQ(text.prompts.size(), 1u);
  EXPECT_EQ(SmallModel().engine->Decode(text.prompts[0]), "<｜begin▁of▁sentence｜>The mill");
  EXPECT_EQ(text.options.max_tokens, 16);
  EXPECT_EQ(Read(R"({"prompt": "<｜begin▁of▁sentence｜>The mill"})").prompts, text.prompts);
  EXPECT_EQ(Read(R"({"prompt": ["The mill", "The mill"]})").prompts.size(), 2u);
  EXPECT_EQ(Read(R"({"prompt": [5, 6]})").prompts, (std::vector<std::vector<int32_t>>{{5, 6}}));
  EXPECT_EQ(Read(R"({"prompt": [[5, 6], [7]]})").prompts, (std::vector<std::vector<int32_t>>{{5, 6}, {7}}));
}

TEST(CompletionRequest, RefusesByTheFieldsName) {
  const std::pair<const char*, const char*> kBad[] = {
      {R"({})", "prompt"},
      {R"({"prompt": ""})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [[]]})", "prompt"},
      {R"({"prompt": [[1], "a"]})", "prompt"},
      {R"({"prompt": ["a", 1]})", "prompt"},
      {R"({"prompt": [-1]})", "prompt"},
      {R"({"prompt": [2560]})", "prompt"},
      {R"({"prompt": [4294967296]})", "prompt"},
      {R"({"prompt": [1.5]})", "prompt"},
      {R"({"prompt": {"a": 1}})", "prompt"},
      {R"({"prompt": "a", "echo": true})", "echo"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix"},
      {R"({"prompt": "a", "logprobs": 6})", "logprobs"},
      {R"({"prompt": "a", "logprobs": true})", "logprobs"},
      {R"({"prompt": "a", "best_of": 2})", "best_of"},
      {R"({"prompt": "a", "n": 17})", "n"},
      {R"({"prompt": "a", "messages": []})", "messages"},
  };
  for (const auto& [body, param] : kBad) {
    const ApiError error = Refusal(body);
    EXPECT_EQ(error.param, param) << body;
    EXPECT_EQ(error.http_status, 400) << body;
  }
  std::string many = R"({"prompt": ["a")";
  for (int i = 0; i < 128; ++i) many += R"(, "a")";
  EXPECT_THAT(Refusal(many + "]}").message, HasSubstr("up to 128"));
}

TEST(CompletionRequest, Case_P03_LogProbabilitiesOfAPromptAreRefused) {
  EXPECT_EQ(Refusal(R"({"prompt": "a", "prompt_logprobs": 1})").param, "prompt_logprobs");
  EXPECT_EQ(Refusal(R"({"prompt": "a", "echo": true, "logprobs": 1})").param, "echo");
}

TEST(CompletionRequest, AdmissionCountsTheSessionsThatRunAtOnce) {
  const GenerationRequest request = Read(R"({"prompt": [[1, 2, 3], [4]], "n": 2, "max_tokens": 10})");
  EXPECT_EQ(request.prompt_tokens(), 4);
  EXPECT_EQ(request.num_answers(), 4u);
  EXPECT_EQ(request.TokensNeeded(), 2 * 13 + 2 * 11);
  MemoryPlan plan;
  plan.block_size = 12;
  EXPECT_EQ(request.PagesNeeded(plan), 2 * 2 + 2 * 1);
  EXPECT_EQ(Read(R"({"prompt": [1], "max_tokens": 1000000})").TokensNeeded(), 4096);
  EXPECT_EQ(Read(R"({"prompt": [[1], [1], [1, 2]], "n": 16, "max_tokens": 1})").TokensNeeded(), 16 * 3);
}

TEST(TextApi, TokenizesAndBack) {
  const ApiReply reply = TokenizeReply(R"({"prompt": "The mill"})", SmallModel());
  ASSERT_EQ(reply.http_status, 200);
  const Json json = Json::parse(reply.body);
  EXPECT_EQ(json["count"], json["tokens"].size());
  EXPECT_EQ(json["max_model_len"], 4096);
  EXPECT_EQ(json["tokens"][0], 0);
  const Json back = {{"tokens", json["tokens"]}};
  EXPECT_EQ(Json::parse(DetokenizeReply(back.dump(), SmallModel()).body)["prompt"], "<｜begin▁of▁sentence｜>The mill");
  const ApiReply bare = TokenizeReply(R"({"prompt": "The mill", "add_special_tokens": false})", SmallModel());
  EXPECT_EQ(Json::parse(bare.body)["count"], json["count"].get<int>() - 1);
}

TEST(TextApi, TokenizesAChatAsItIsAnswered) {
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "low"})";
  GenerationRequest request;
  ASSERT_FALSE(ReadChatRequest(body, SmallModel(), &request));
  EXPECT_EQ(Json::parse(TokenizeReply(body, SmallModel()).body)["tokens"], Json(request.prompts[0]));
}

TEST(TextApi, RefusesInOpenAiShape) {
  for (const ApiReply& reply :
       {TokenizeReply("{}", SmallModel()), TokenizeReply("[", SmallModel()),
        TokenizeReply(R"({"prompt": "a", "x": 1})", SmallModel()), DetokenizeReply("{}", SmallModel()),
        DetokenizeReply(R"({"tokens": [2560]})", SmallModel()), DetokenizeReply(R"({"tokens": [-1]})", SmallModel()),
        DetokenizeReply(R"({"tokens": ["a"]})", SmallModel()), ExplainReply("{}", SmallModel(), ""),
        ExplainReply(R"({"prompt": ["a", "b"]})", SmallModel(), "")}) {
    EXPECT_EQ(reply.http_status, 400);
    EXPECT_EQ(Json::parse(reply.body)["error"]["type"], "invalid_request_error");
  }
}

TEST(TextApi, ListsTheModel) {
  const Json list = Json::parse(ModelsReply(SmallModel()).body);
  EXPECT_EQ(list["data"][0]["id"], "ember-tiny");
  EXPECT_EQ(Json::parse(ModelReply("ember-tiny", SmallModel()).body), list["data"][0]);
  EXPECT_EQ(ModelReply("other", SmallModel()).http_status, 404);
}

TEST(TextApi, ExplainsWhatARunWouldFind) {
  const std::string prompt = FactText(2, "111 222");
  const std::string body = Json{{"prompt", prompt}, {"max_tokens", 1}}.dump();
  const Json before = Json::parse(ExplainReply(body, SmallModel(), "explain").body);
  EXPECT_EQ(before["hit_tokens"], 0);
  ASSERT_GE(before["blocks"].size(), 2u);
  EXPECT_EQ(before["blocks"][0]["where"], "missing");
  EXPECT_FALSE(before["miss_reason"].is_null());
  ApiRun run;
  run.tenant = "explain";
  run.Complete(body);
  const Json after = Json::parse(ExplainReply(body, SmallModel(), "explain").body);
  EXPECT_EQ(after["hit_tokens"], after["block_size"].get<size_t>() * after["blocks"].size());
  EXPECT_EQ(after["blocks"][0]["key"], before["blocks"][0]["key"]);
  EXPECT_EQ(after["blocks"][0]["is_hit"], true);
  EXPECT_TRUE(after["miss_reason"].is_null());
  EXPECT_EQ(Json::parse(ExplainReply(body, SmallModel(), "other").body)["hit_tokens"], 0);
}

}  // namespace
}  // namespace emberkv
