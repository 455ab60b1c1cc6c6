#include "prompt/message_json.h"

#include <gtest/gtest.h>

#include "prompt/python_json.h"

namespace emberkv {
namespace {

std::string Refusal(const std::string& messages) {
  const Result<nlohmann::ordered_json> json = ParseJson(messages);
  if (!json.ok()) return "the test's JSON is wrong: " + json.status().message();
  return MessagesFromJson(*json).status().message();
}

TEST(MessagesFromJson, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(Refusal("{}"), "messages is an object of 0 fields; it must be a list");
  EXPECT_EQ(Refusal("[1]"), "messages[0] is 1; a message must be an object");
  EXPECT_EQ(Refusal("[{}]"),
            "messages[0].role is null; allowed: \"system\", \"user\", \"assistant\", \"tool\", "
            "\"latest_reminder\"");
  EXPECT_EQ(Refusal(R"([{"role":"user","content":null}])"),
            "messages[0].content is null; it must be a text or a list of content parts");
  EXPECT_EQ(
      Refusal(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"video"}]}])"),
      "messages[0].content[1].type is \"video\"; allowed: \"text\", \"image_url\", \"image\", "
      "\"input_image\"");
  EXPECT_EQ(
      Refusal(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}])"),
      "messages[0].tool_calls[0].function.arguments is 7; it must be a text, which holds a JSON "
      "object, or an object");
  EXPECT_EQ(Refusal(R"([{"role":"system","tools":[{"type":"function"}]}])"),
            "messages[0].tools[0].function is null; it must be an object");
  EXPECT_EQ(Refusal(R"([{"role":"assistant","wo_eos":1}])"),
            "messages[0].wo_eos is 1; it must be true or false");
}

TEST(MessagesFromJson, RefusesWhatWouldBeLost) {
  EXPECT_EQ(Refusal(R"([{"role":"user","content":"a","audio":{"id":"x"}}])"),
            "messages[0].audio is an object of 1 fields; this field is not known here");
  EXPECT_EQ(Refusal(R"([{"role":"user","response_format":{"type":"json_object"}}])"),
            "messages[0].response_format is an object of 1 fields; this field is not allowed in a "
            "message of this role");
  EXPECT_EQ(Refusal(R"([{"role":"system","tools":[{"function":{"name":"f","namespace":"n"}}]}])"),
            "messages[0].tools[0].namespace is \"n\"; namespaces of tools are not supported");
}

TEST(MessagesFromJson, AcceptsWhatClientsEchoEmpty) {
  EXPECT_EQ(Refusal(R"([{"role":"assistant","content":null,"refusal":null,"annotations":[],
                         "tool_calls":null,"reasoning_content":null,"name":"x"}])"),
            "");
}

TEST(MessagesFromJson, ADeepSchemaIsRefusedByItsPlace) {
  nlohmann::ordered_json deep = nlohmann::ordered_json::object();
  for (int i = 0; i <= kMaxJsonDepth; ++i) {
    nlohmann::ordered_json outer;
    outer["x"] = std::move(deep);
    deep = std::move(outer);
  }
  deep["name"] = "f";
  nlohmann::ordered_json messages = {{{"role", "system"}, {"tools", {{{"function", deep}}}}}};
  const Status status = MessagesFromJson(messages).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message().rfind("messages[0].tools[0].function: ", 0), 0u) << status.message();
}

TEST(ReasoningEffortFromJson, TakesNumbersAndNames) {
  EXPECT_EQ(*ReasoningEffortFromJson("low"), 50);
  EXPECT_EQ(*ReasoningEffortFromJson(100), 100);
  EXPECT_EQ(*ReasoningEffortFromJson(nullptr), 75);
  EXPECT_EQ(
      ReasoningEffortFromJson(50.0).status().message(),
      "reasoning_effort is 50.0; allowed: an integer from 1 to 100, \"low\", \"high\", \"max\"");
}

TEST(AnswerToJson, WritesAnIdOnlyWhereThereIsOne) {
  Message answer = TextMessage(Role::kAssistant, "c");
  answer.tool_calls = {{"id1", "f", "{}"}, {"", "g", "{}"}};
  EXPECT_EQ(AnswerToJson(answer).dump(),
            R"({"role":"assistant","content":"c","reasoning_content":"","tool_calls":[)"
            R"({"id":"id1","type":"function","function":{"name":"f","arguments":"{}"}},)"
            R"({"type":"function","function":{"name":"g","arguments":"{}"}}]})");
}

}  // namespace
}  // namespace emberkv
