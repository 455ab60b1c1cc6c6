// Any bytes as a model's answer and as a conversation's JSON. The first byte says which.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prompt/answer_parser.h"
#include "prompt/chat_prompt.h"
#include "prompt/message_json.h"
#include "prompt/python_json.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

// A plain answer that was read is written as it stood.
void ReadAnswer(std::string_view text, ThinkingMode mode) {
  const Result<Message> answer = ParseAnswer(text, mode);
  if (!answer.ok()) return;
  Require(text.ends_with(kEosText) || text.ends_with(kCallsEnd));
  Require(PythonJson(AnswerToJson(*answer)).ok());
  const std::vector<Message> context = {TextMessage(Role::kUser, "")};
  const Result<std::string> written =
      EncodeContinuation(context, std::vector{*answer}, {.thinking_mode = mode});
  if (answer->tool_calls.empty() && text.find(kCallsBegin) == text.npos &&
      text.find(kImageText) == text.npos) {
    Require(written.ok() && *written == text);
  }
}

void ReadMessages(std::string_view text, ThinkingMode mode) {
  const Result<nlohmann::ordered_json> json = ParseJson(text);
  if (!json.ok()) return;
  const Result<std::string> rewritten = PythonJson(*json);
  Require(rewritten.ok());
  const Result<nlohmann::ordered_json> again = ParseJson(*rewritten);
  Require(again.ok() && *PythonJson(*again) == *rewritten);
  const Result<std::vector<Message>> messages = MessagesFromJson(*json);
  if (!messages.ok()) return;
  const Result<std::string> prompt = EncodeMessages(*messages, {.thinking_mode = mode});
  Require(!prompt.ok() || prompt->starts_with(kBosText));
}

}  // namespace
}  // namespace emberkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace emberkv;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const ThinkingMode mode = data[0] & 1 ? ThinkingMode::kThinking : ThinkingMode::kChat;
  if (data[0] & 2) {
    ReadMessages(text, mode);
  } else {
    ReadAnswer(text, mode);
  }
  return 0;
}
