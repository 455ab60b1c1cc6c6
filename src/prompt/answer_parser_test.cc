#include "prompt/answer_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prompt/chat_prompt.h"

namespace emberkv {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";

std::string Calls(const std::string& inside) {
  return "\n\n<｜DSML｜ calls>\n" + inside + "</｜DSML｜ calls>" + std::string(kEos);
}

TEST(ParseAnswer, ReadsBackWhatTheEncoderWrites) {
  Message answer = TextMessage(Role::kAssistant, "Let me look.");
  answer.reasoning_content = "why\n\nnot";
  answer.tool_calls = {
      {"", "get \"x\"", R"({"city": "Łódź \"a\"\n", "n": [1, {"b": 2.5}], "e": ""})"},
      {"", "now", "{}"}};
  const std::vector<Message> messages = {TextMessage(Role::kUser, "q")};
  const EncodeOptions options{.thinking_mode = ThinkingMode::kThinking};
  const std::vector<Message> written = {answer};
  const std::string text = *EncodeContinuation(messages, written, options);
  const Result<Message> read = ParseAnswer(text, ThinkingMode::kThinking);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->content.at(0).text, "Let me look.");
  EXPECT_EQ(read->reasoning_content, answer.reasoning_content);
  ASSERT_EQ(read->tool_calls.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->tool_calls[i].name, answer.tool_calls[i].name);
    EXPECT_EQ(read->tool_calls[i].arguments, answer.tool_calls[i].arguments);
  }
}

TEST(ParseAnswer, RefusesACallThatWasCutOff) {
  const std::string whole = Calls(
      "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">1</｜DSML｜ "
      "parameter>\n</｜DSML｜ invoke>\n");
  ASSERT_TRUE(ParseAnswer(whole, ThinkingMode::kChat).ok());
  const std::string without_eos = whole.substr(0, whole.size() - kEos.size());
  ASSERT_TRUE(ParseAnswer(without_eos, ThinkingMode::kChat).ok());
  for (size_t size = 0; size < without_eos.size(); ++size) {
    EXPECT_FALSE(ParseAnswer(without_eos.substr(0, size), ThinkingMode::kChat).ok()) << size;
  }
}

TEST(ParseAnswer, SaysWhatWasFoundAndExpected) {
  const Result<Message> answer =
      ParseAnswer(Calls("<｜DSML｜ invoke name=f>\n</｜DSML｜ invoke>\n"), ThinkingMode::kChat);
  EXPECT_EQ(answer.status().message(),
            "tool call name is \" name=f>\\n\"; expected name=\"NAME\"> and a newline in an invoke "
            "tag");
}

TEST(ParseAnswer, AQuoteInAParameterNameIsPartOfIt) {
  const std::string text = Calls(
      "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"b\" string=\"false\">1"
      "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n");
  const Result<Message> answer = ParseAnswer(text, ThinkingMode::kChat);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->tool_calls.at(0).arguments, R"({"a\" string=\"b": 1})");
}

TEST(ParseAnswer, TakesTimeInProportionToTheText) {
  std::string calls;
  for (int i = 0; i < 50'000; ++i) calls += "<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n";
  const Result<Message> answer = ParseAnswer(Calls(calls), ThinkingMode::kChat);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->tool_calls.size(), 50'000u);
}

}  // namespace
}  // namespace emberkv
