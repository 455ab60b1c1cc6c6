#include "prompt/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

Message User(std::string text) { return TextMessage(Role::kUser, std::move(text)); }
Message Assistant(std::string text) { return TextMessage(Role::kAssistant, std::move(text)); }

TEST(ChatPrompt, AContinuationIsWhatTheLongerConversationAdds) {
  for (const ThinkingMode mode : {ThinkingMode::kChat, ThinkingMode::kThinking}) {
    const EncodeOptions options{.thinking_mode = mode, .drops_past_thinking = false};
    const std::vector<Message> first = {TextMessage(Role::kSystem, "s"), User("q"), Assistant("a")};
    const std::vector<Message> next = {User("more")};
    std::vector<Message> whole = first;
    whole.push_back(next[0]);
    EXPECT_EQ(*EncodeMessages(first, options) + *EncodeContinuation(first, next, options),
              *EncodeMessages(whole, options));
  }
}

TEST(ChatPrompt, AContinuationDoesNotJoinTheUserTurnBeforeIt) {
  const std::vector<Message> context = {User("q")};
  const std::vector<Message> next = {User("more")};
  EXPECT_EQ(*EncodeContinuation(context, next, {}), "<｜User｜>more<｜Assistant｜></think>");
}

TEST(ChatPrompt, ToolResultsAreOrderedByCallsOfTheContext) {
  Message calls = Assistant("");
  calls.tool_calls = {{"one", "f", "{}"}, {"two", "f", "{}"}};
  Message second = TextMessage(Role::kTool, "2");
  second.tool_call_id = "two";
  Message first = TextMessage(Role::kTool, "1");
  first.tool_call_id = "one";
  const std::vector<Message> context = {User("q"), calls};
  const std::vector<Message> next = {second, first, User("and?")};
  EXPECT_EQ(*EncodeContinuation(context, next, {}),
            "<｜User｜><tool_result>1</tool_result>\n\n<tool_result>2</tool_result>\n\nand?"
            "<｜Assistant｜></think>");
}

TEST(ChatPrompt, OnlyTheLastReasoningIsKept) {
  Message answer = Assistant("a");
  answer.reasoning_content = "because";
  const std::vector<Message> messages = {User("q"), answer, User("r"), answer};
  const std::string prompt =
      *EncodeMessages(messages, {.thinking_mode = ThinkingMode::kThinking, .adds_bos = false});
  EXPECT_THAT(prompt, HasSubstr("<｜User｜>q<｜Assistant｜></think>a<｜end▁of▁sentence｜>"));
  EXPECT_THAT(prompt, HasSubstr("<｜User｜>r<｜Assistant｜><think>because</think>a"));
}

TEST(ChatPrompt, RefusesAnEffortOutOfRange) {
  for (const int effort : {-1, 0, 101}) {
    const Result<std::string> prompt =
        EncodeMessages(std::vector{User("q")}, {.reasoning_effort = effort});
    EXPECT_THAT(prompt.status().message(), HasSubstr("it must be 1 to 100")) << effort;
  }
}

TEST(ChatPrompt, RefusesTheImageTokenInAnyText) {
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
    const std::vector<Message> messages = {User("q"), TextMessage(role, "a <｜deepseek_image｜>")};
    const Result<std::string> prompt = EncodeMessages(messages, {});
    EXPECT_THAT(prompt.status().message(), HasSubstr("messages[1]: content has the text"));
  }
}

TEST(ChatPrompt, RefusesATaskThatTheFormatWouldDrop) {
  Message task = User("b");
  task.task = Task::kTitle;
  const Result<std::string> prompt = EncodeMessages(std::vector{User("a"), task}, {});
  EXPECT_THAT(prompt.status().message(), HasSubstr("messages[1].task"));
  EXPECT_EQ(*EncodeMessages(std::vector{task, User("a")}, {.adds_bos = false}),
            "<｜User｜>b<｜User｜>a<｜Assistant｜></think>");
}

TEST(ChatPrompt, RefusesArgumentsThatAreTooDeep) {
  Message calls = Assistant("");
  calls.tool_calls = {
      {"one", "f", "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"}};
  EXPECT_EQ(EncodeMessages(std::vector{calls}, {}).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace emberkv
