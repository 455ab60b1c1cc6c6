// Any bytes as the text of an answer that is streamed, and as the fields of a request. The first byte says which.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prompt/answer_parser.h"
#include "prompt/python_json.h"
#include "prompt/special_tokens.h"
#include "server/answer_stream.h"
#include "server/request_fields.h"

namespace emberkv {
namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

struct Assembly {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  void Add(const std::vector<AnswerDelta>& deltas) {
    for (const AnswerDelta& delta : deltas) {
      if (delta.kind == AnswerDelta::Kind::kCall) {
        Require(delta.call == static_cast<int>(calls.size()));
        calls.push_back({"", delta.text, ""});
      } else if (delta.kind == AnswerDelta::Kind::kArguments) {
        Require(delta.call + 1 == static_cast<int>(calls.size()));
        calls.back().arguments += delta.text;
      } else {
        (delta.kind == AnswerDelta::Kind::kReasoning ? reasoning : content) += delta.text;
      }
    }
  }

  bool operator==(const Assembly& other) const {
    if (reasoning != other.reasoning || content != other.content || calls.size() != other.calls.size()) return false;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].name != other.calls[i].name || calls[i].arguments != other.calls[i].arguments) return false;
    }
    return true;
  }
};

Assembly Assemble(std::string_view text, size_t piece, const AnswerForm& form) {
  AnswerStream stream(form);
  Assembly assembly;
  for (size_t at = 0; at < text.size(); at += piece) assembly.Add(stream.Push(text.substr(at, piece)));
  assembly.Add(stream.Finish());
  return assembly;
}

// The cut changes nothing, and what the parser accepts comes out as its message.
void StreamAnswer(std::string_view text, bool is_thinking, size_t piece) {
  const AnswerForm form{is_thinking, true};
  const Assembly whole = Assemble(text, text.size() + 1, form);
  Require(Assemble(text, piece, form) == whole);
  const std::string ended = std::string(text) + std::string(kEosText);
  const Result<Message> message =
      ParseAnswer(ended, is_thinking ? ThinkingMode::kThinking : ThinkingMode::kChat);
  if (!message.ok()) return;
  Assembly parsed;
  parsed.reasoning = message->reasoning_content;
  for (const ContentPart& part : message->content) parsed.content += part.text;
  parsed.calls = message->tool_calls;
  Require(parsed == whole);
}

void ReadFields(std::string_view text) {
  const Result<nlohmann::ordered_json> json = ParseJson(text);
  if (!json.ok()) return;
  RequestFields fields(*json);
  int64_t integer = 0;
  double number = 0;
  bool flag = false;
  std::string name;
  fields.Read("i", -5, 5, &integer);
  fields.Read("x", -0.5, 1.5, &number);
  fields.Read("b", &flag);
  fields.Read("t", 16, &name);
  fields.AllowOnly("o", {nlohmann::ordered_json::object(), 0}, "allowed: {}, 0");
  fields.RefuseUnknown();
  Require(integer >= -5 && integer <= 5 && number >= -0.5 && number <= 1.5 && name.size() <= 16);
  if (!fields.error()) return;
  Require(fields.error()->message.size() < 1024 + text.size());
  Require(ParseJson(ErrorJson(*fields.error())).ok());
}

}  // namespace
}  // namespace emberkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace emberkv;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] & 1) {
    ReadFields(text);
  } else {
    StreamAnswer(text, data[0] & 2, static_cast<size_t>(data[0] >> 4) + 1);
  }
  return 0;
}
