#include "server/request_fields.h"

#include <gtest/gtest.h>

#include "server/usage_json.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

std::string MessageOf(const RequestFields& fields) { return fields.error() ? fields.error()->message : ""; }

TEST(RequestFields, NullIsAsGoodAsAbsent) {
  const Json json = {{"b", nullptr}, {"i", nullptr}, {"t", nullptr}};
  RequestFields fields(json);
  bool flag = true;
  int64_t number = 7;
  std::string text = "as it was";
  fields.Read("b", &flag);
  fields.Read("i", 0, 1, &number);
  fields.Read("t", 1, &text);
  fields.Read("absent", &flag);
  fields.RefuseUnknown();
  EXPECT_EQ(MessageOf(fields), "");
  EXPECT_TRUE(flag);
  EXPECT_EQ(number, 7);
  EXPECT_EQ(text, "as it was");
}

TEST(RequestFields, SaysFieldFoundAndAllowed) {
  const auto refusal = [](const Json& value) {
    const Json json = {{"i", value}};
    RequestFields fields(json, "inner.");
    int64_t number = 0;
    fields.Read("i", -2, 5, &number);
    EXPECT_TRUE(!fields.error() || fields.error()->param == "inner.i");
    return MessageOf(fields);
  };
  const std::string rule = "; allowed: an integer from -2 to 5";
  EXPECT_EQ(refusal(5), "");
  EXPECT_EQ(refusal(-2), "");
  EXPECT_EQ(refusal(6), "inner.i is 6" + rule);
  EXPECT_EQ(refusal(-3), "inner.i is -3" + rule);
  EXPECT_EQ(refusal(1.0), "inner.i is 1.0" + rule);
  EXPECT_EQ(refusal("1"), "inner.i is \"1\"" + rule);
  EXPECT_EQ(refusal(UINT64_MAX), "inner.i is 18446744073709551615" + rule);
  EXPECT_EQ(refusal(INT64_MIN), "inner.i is -9223372036854775808" + rule);
  EXPECT_EQ(refusal(Json::array({1, 2})), "inner.i is a list of 2 values" + rule);
  EXPECT_EQ(refusal(std::string(100, 'x')), "inner.i is a text of 100 bytes" + rule);
}

TEST(RequestFields, KeepsTheFirstFailure) {
  const Json json = {{"a", 1}, {"b", 2}};
  RequestFields fields(json);
  bool flag = false;
  fields.Read("a", &flag);
  fields.Read("b", &flag);
  fields.RefuseUnknown();
  EXPECT_EQ(MessageOf(fields), "a is 1; allowed: true, false");
}

TEST(RequestFields, RefusesWhatNobodyLookedFor) {
  const Json json = {{"known", 1}, {"tempratur", 2}};
  RequestFields fields(json);
  fields.Ignore("known");
  fields.RefuseUnknown();
  EXPECT_EQ(MessageOf(fields), "tempratur is 2; this field is not known");
  EXPECT_EQ(fields.error()->param, "tempratur");
}

TEST(RequestFields, RefusesWhatIsNoObject) {
  const Json json = Json::array();
  EXPECT_EQ(MessageOf(RequestFields(json)), "the body is a list of 0 values; it must be an object");
  EXPECT_EQ(MessageOf(RequestFields(json, "emberkv.")), "emberkv is a list of 0 values; it must be an object");
}

TEST(OpenAiError, HasTheShapeThatClientsKnow) {
  EXPECT_EQ(ErrorJson(InvalidRequest("n", "n is 0", "")),
            R"({"error":{"message":"n is 0","type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_EQ(ErrorJson({404, "m", "model", "model_not_found"}),
            R"({"error":{"message":"m","type":"invalid_request_error","param":"model","code":"model_not_found"}})");
}

TEST(OpenAiError, StatusesBecomeHttpStatuses) {
  EXPECT_EQ(ErrorOf(InvalidArgument("x")).http_status, 400);
  EXPECT_EQ(ErrorOf(NotFound("x")).http_status, 404);
  EXPECT_EQ(ErrorOf(Cancelled("x")).http_status, 499);
  EXPECT_EQ(ErrorOf(ResourceExhausted("no pages")).http_status, 503);
  EXPECT_EQ(ErrorOf(ResourceExhausted("no pages")).message, "no pages");
  EXPECT_EQ(ErrorOf(Internal("row 7 of /secret")).http_status, 500);
  EXPECT_EQ(ErrorOf(Internal("row 7 of /secret")).message.find("secret"), std::string::npos);
}

TEST(UsageJson, HitAndMissMakeThePrompt) {
  GenerationOutcome outcome;
  outcome.prompt_tokens = 1000;
  outcome.hit_tokens = 896;
  outcome.completion_tokens = 20;
  outcome.reasoning_tokens = 5;
  EXPECT_EQ(UsageJson(outcome).dump(),
            R"({"prompt_tokens":1000,"completion_tokens":20,"total_tokens":1020,"prompt_cache_hit_tokens":896,)"
            R"("prompt_cache_miss_tokens":104,"prompt_tokens_details":{"cached_tokens":896},)"
            R"("completion_tokens_details":{"reasoning_tokens":5}})");
}

TEST(UsageJson, TheTraceTellsWhatTheCacheSaved) {
  const PriceTable prices = PublishedPrices();
  GenerationContext context;
  context.request_id = "req-7";
  context.prices = &prices;
  context.queue_seconds = 0.25;
  GenerationOutcome outcome;
  outcome.prompt_tokens = 1'000'000;
  outcome.hit_tokens = 1'000'000;
  outcome.replayed_at = 256;
  outcome.cost = CostOf(prices, outcome.arrived_us, outcome.prompt_tokens, outcome.hit_tokens, 0);
  const Json trace = TraceJson(outcome, context);
  EXPECT_EQ(trace["request_id"], "req-7");
  EXPECT_EQ(trace["provenance"], "replayed@256");
  EXPECT_EQ(trace["queue_seconds"], 0.25);
  EXPECT_TRUE(trace["miss_reason"].is_null());
  EXPECT_EQ(trace["cost"]["period"], "off-peak");
  EXPECT_DOUBLE_EQ(trace["cost"]["with_cache_usd"], 0.003);
  EXPECT_DOUBLE_EQ(trace["cost"]["without_cache_usd"], 0.15);
  EXPECT_DOUBLE_EQ(trace["cost"]["saved_usd"], 0.147);
}

}  // namespace
}  // namespace emberkv
