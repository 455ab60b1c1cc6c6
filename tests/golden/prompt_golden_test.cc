// Prompts and answers of the official encoder (tests/data/golden/prompt): equal to the byte, or
// refused where it refuses.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "prompt/answer_parser.h"
#include "prompt/chat_prompt.h"
#include "prompt/message_json.h"
#include "prompt/python_json.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

Json ReadCases(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(EMBERKV_TEST_DATA) + "/golden/prompt/" + name).rdbuf();
  return *ParseJson(text.str());
}

Json FieldOr(const Json& object, const char* name, const Json& otherwise) {
  return object.contains(name) ? object[name] : otherwise;
}

Result<std::string> Encode(const Json& input) {
  EncodeOptions options;
  EMBERKV_ASSIGN_OR_RETURN(options.thinking_mode, ThinkingModeFromJson(input["thinking_mode"]));
  EMBERKV_ASSIGN_OR_RETURN(options.reasoning_effort,
                           ReasoningEffortFromJson(FieldOr(input, "reasoning_effort", nullptr)));
  options.drops_past_thinking = FieldOr(input, "drop_thinking", true).get<bool>();
  options.adds_bos = FieldOr(input, "add_default_bos_token", true).get<bool>();
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<Message> context,
                           MessagesFromJson(FieldOr(input, "context", Json::array())));
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<Message> messages,
                           MessagesFromJson(input["messages"]));
  return EncodeContinuation(context, messages, options);
}

TEST(PromptGolden, EveryPromptIsEqualToTheByte) {
  const Json cases = ReadCases("encode_cases.json");
  ASSERT_EQ(cases.size(), 69u);
  for (const Json& c : cases) {
    const Result<std::string> prompt = Encode(c["input"]);
    if (c.contains("error")) {
      EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument) << c["name"];
    } else {
      ASSERT_TRUE(prompt.ok()) << c["name"] << ": " << prompt.status().message();
      EXPECT_EQ(*prompt, c["output"].get<std::string>()) << c["name"];
    }
  }
}

TEST(PromptGolden, EveryAnswerIsReadAsTheOfficialParserReadsIt) {
  const Json cases = ReadCases("parse_cases.json");
  ASSERT_EQ(cases.size(), 44u);
  for (const Json& c : cases) {
    const Result<Message> answer =
        ParseAnswer(c["text"].get<std::string>(), *ThinkingModeFromJson(c["thinking_mode"]));
    if (c.contains("error")) {
      EXPECT_EQ(answer.status().code(), StatusCode::kInvalidArgument) << c["name"];
    } else {
      ASSERT_TRUE(answer.ok()) << c["name"] << ": " << answer.status().message();
      EXPECT_EQ(AnswerToJson(*answer), c["message"]) << c["name"];
    }
  }
}

}  // namespace
}  // namespace emberkv
