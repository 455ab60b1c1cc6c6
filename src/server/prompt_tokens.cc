#include "server/prompt_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "prompt/python_json.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

// The longest text of a control token that is looked for.
constexpr size_t kMaxTokenBytes = 128;

// Unicode's noncharacters U+FDD0 to U+FDEF: one that the prompt lacks marks where it is cut.
std::optional<std::string> UnusedMark(std::string_view text) {
  for (int last = 0x90; last <= 0xAF; ++last) {
    const std::string mark = {'\xEF', '\xB7', static_cast<char>(last)};
    if (text.find(mark) == std::string_view::npos) return mark;
  }
  return std::nullopt;
}

// Puts marks inside of the control tokens that texts hold.
class Marker {
 public:
  Marker(const Engine& engine, std::string mark) : engine_(engine), mark_(std::move(mark)) {}

  bool has_marked() const { return has_marked_; }

  void Mark(Message* message) {
    for (ContentPart& part : message->content) Mark(&part.text);
    for (std::string& tool : message->tools) Mark(&tool);
    Mark(&message->response_format);
    Mark(&message->reasoning_content);
    for (ToolCall& call : message->tool_calls) {
      Mark(&call.name);
      MarkArguments(&call.arguments);
    }
  }

 private:
  void Mark(std::string* text) {
    if (text->find('<') == std::string::npos && text->find(kDsmlText) == std::string::npos) return;
    std::string marked;
    for (size_t at = 0; at < text->size();) {
      const bool begins = BeginsControlToken(std::string_view(*text).substr(at));
      // Whole characters, so that each part is a text.
      const size_t size = !begins || (*text)[at] == '<' ? 1 : kDsmlText.find('D');
      marked.append(*text, at, size);
      if (begins) {
        marked += mark_;
        has_marked_ = true;
      }
      at += size;
    }
    *text = std::move(marked);
  }

  // The format writes the values that the text means, in which escapes may hide a control token.
  void MarkArguments(std::string* arguments) {
    Result<Json> value = ParseJson(*arguments);
    if (value.ok() && value->is_string()) value = ParseJson(value->get<std::string>());
    if (!value.ok() || !value->is_object()) return Mark(arguments);
    const bool had_marked = std::exchange(has_marked_, false);
    const Json marked = MarkedJson(*value);
    if (has_marked_) {
      // What was read before can be written.
      if (Result<std::string> text = PythonJson(marked); text.ok()) *arguments = std::move(text).value();
    }
    has_marked_ = has_marked_ || had_marked;
  }

  // ParseJson has bounded the depth.
  Json MarkedJson(const Json& value) {
    if (value.is_string()) {
      std::string text = value.get<std::string>();
      Mark(&text);
      return text;
    }
    if (!value.is_structured()) return value;
    Json marked = value.is_object() ? Json::object() : Json::array();
    for (const auto& item : value.items()) {
      if (value.is_array()) {
        marked.push_back(MarkedJson(item.value()));
      } else {
        std::string key = item.key();
        Mark(&key);
        marked[key] = MarkedJson(item.value());
      }
    }
    return marked;
  }

  // A control token is written <think>, </think>, <｜...｜>, <|...|> or ｜DSML｜ and is one token.
  bool BeginsControlToken(std::string_view text) const {
    if (text.starts_with(kDsmlText)) return true;
    if (!text.starts_with('<')) return false;
    if (text.starts_with(kThinkBegin) || text.starts_with(kThinkEnd)) return true;
    if (!text.starts_with("<｜") && !text.starts_with("<|")) return false;
    const size_t end = text.substr(0, kMaxTokenBytes).find('>');
    if (end == std::string_view::npos) return false;
    const Result<std::vector<int32_t>> ids = engine_.Encode(text.substr(0, end + 1));
    return ids.ok() && ids->size() == 1;
  }

  const Engine& engine_;
  const std::string mark_;
  bool has_marked_ = false;
};

}  // namespace

Result<PromptTokens> EncodeChat(const Engine& engine, std::span<const Message> messages,
                                const EncodeOptions& options) {
  PromptTokens prompt;
  EMBERKV_ASSIGN_OR_RETURN(prompt.text, EncodeMessages(messages, options));
  const std::optional<std::string> mark = UnusedMark(prompt.text);
  if (!mark) return InvalidArgument("the messages hold all noncharacters from U+FDD0 to U+FDEF; allowed: not all");
  Marker marker(engine, *mark);
  std::vector<Message> marked(messages.begin(), messages.end());
  for (Message& message : marked) marker.Mark(&message);
  if (!marker.has_marked()) {
    EMBERKV_ASSIGN_OR_RETURN(prompt.tokens, engine.Encode(prompt.text));
    return prompt;
  }

  EMBERKV_ASSIGN_OR_RETURN(const std::string text, EncodeMessages(marked, options));
  std::string joined;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(*mark, begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    EMBERKV_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, engine.Encode(part));
    prompt.tokens.insert(prompt.tokens.end(), ids.begin(), ids.end());
    joined += part;
    begin = end + mark->size();
  }
  if (joined != prompt.text) {
    return InvalidArgument("the messages hold texts of control tokens in a place where they cannot be kept as text");
  }
  return prompt;
}

Result<std::vector<int32_t>> EncodePlain(const Engine& engine, std::string_view text) {
  EMBERKV_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, engine.Encode(text));
  const int32_t bos = engine.config().bos_token_id;
  if (tokens.empty() || tokens.front() != bos) tokens.insert(tokens.begin(), bos);
  return tokens;
}

}  // namespace emberkv
