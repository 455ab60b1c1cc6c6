#include "prompt/answer_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "prompt/python_json.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

constexpr size_t kMaxShown = 80;

Status Refuse(std::string_view what, std::string_view found, std::string_view expected) {
  const std::string shown = PythonJsonString(found.substr(0, kMaxShown));
  return InvalidArgument(fmt::format("{} is {}{}; expected {}", what, shown,
                                     found.size() > kMaxShown ? "..." : "", expected));
}

// Reads a text from stop to stop.
class Reader {
 public:
  struct Piece {
    std::string_view text;  // before the stop
    std::string_view stop;  // the one that came first; empty at the end of the text
  };

  explicit Reader(std::string_view text) : rest_(text) {}

  Piece ReadUntil(std::initializer_list<std::string_view> stops) {
    for (size_t at = 0; at < rest_.size(); ++at) {
      for (const std::string_view stop : stops) {
        if (!rest_.substr(at).starts_with(stop)) continue;
        const std::string_view text = rest_.substr(0, at);
        rest_.remove_prefix(at + stop.size());
        return {text, stop};
      }
    }
    return {std::exchange(rest_, {}), {}};
  }

  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// Takes `prefix` off the front of *text.
bool Take(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

struct Parameter {
  std::string_view name;
  std::string_view value;
  bool is_string = false;
};

// `text` lies between the parameter tag's name and its closing tag.
Result<Parameter> ParseParameter(std::string_view text) {
  constexpr std::string_view kForm = "name=\"NAME\" string=\"true|false\">VALUE in a parameter tag";
  std::string_view rest = text;
  if (!Take(" name=\"", &rest)) return Refuse("tool call parameter", text, kForm);
  // The name may have quotes in it: it ends where the flag begins.
  for (size_t at = rest.find("\" string=\""); at != std::string_view::npos;
       at = rest.find("\" string=\"", at + 1)) {
    std::string_view value = rest.substr(at);
    Take("\" string=\"", &value);
    const bool is_string = Take("true\">", &value);
    if (is_string || Take("false\">", &value))
      return Parameter{rest.substr(0, at), value, is_string};
  }
  return Refuse("tool call parameter", text, kForm);
}

// `text` lies between the invoke tag's name and what follows the tag.
Result<std::string> ParseToolName(std::string_view text) {
  std::string_view rest = text;
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n\f\v"), rest.size()));
  // A call without parameters may have a blank line in their place.
  if (rest.ends_with(">\n\n")) rest.remove_suffix(1);
  if (!Take("name=\"", &rest) || !rest.ends_with("\">\n")) {
    return Refuse("tool call name", text, "name=\"NAME\"> and a newline in an invoke tag");
  }
  rest.remove_suffix(3);
  return std::string(rest);
}

// Checks what lies between two tags: the end of the first and a newline.
Status CheckBetween(const Reader::Piece& piece, std::string_view what) {
  if (piece.text == ">\n" && !piece.stop.empty()) return Status::Ok();
  return Refuse(fmt::format("text after {}", what), piece.text,
                "> and a newline, then the next tag of the block");
}

Result<ToolCall> ParseCall(Reader* reader) {
  Reader::Piece piece = reader->ReadUntil({kParameterBegin, kInvokeEnd});
  ToolCall call;
  EMBERKV_ASSIGN_OR_RETURN(call.name, ParseToolName(piece.text));
  std::vector<std::string_view> names;
  std::string arguments;
  while (piece.stop == kParameterBegin) {
    const Reader::Piece inside = reader->ReadUntil({kParameterEnd});
    if (inside.stop.empty()) return Refuse("tool call parameter", inside.text, "its closing tag");
    EMBERKV_ASSIGN_OR_RETURN(const Parameter parameter, ParseParameter(inside.text));
    if (std::find(names.begin(), names.end(), parameter.name) != names.end()) {
      return Refuse("tool call parameter name", parameter.name, "a name once only");
    }
    names.push_back(parameter.name);
    if (!arguments.empty()) arguments += ", ";
    arguments += PythonJsonString(parameter.name) + ": ";
    arguments +=
        parameter.is_string ? PythonJsonString(parameter.value) : std::string(parameter.value);
    piece = reader->ReadUntil({kParameterBegin, kInvokeEnd});
    EMBERKV_RETURN_IF_ERROR(CheckBetween(piece, "a parameter"));
  }
  // Without its end the call may lack parameters: it must not be made.
  if (piece.stop.empty()) return Refuse("tool call", call.name, "the invoke tag's closing tag");
  call.arguments = "{" + arguments + "}";
  return call;
}

Status ParseCalls(Reader* reader, std::vector<ToolCall>* calls) {
  while (true) {
    const Reader::Piece piece = reader->ReadUntil({kInvokeBegin, kCallsEnd});
    EMBERKV_RETURN_IF_ERROR(CheckBetween(piece, calls->empty() ? "the calls tag" : "a call"));
    if (piece.stop == kCallsEnd) return Status::Ok();
    EMBERKV_ASSIGN_OR_RETURN(ToolCall call, ParseCall(reader));
    calls->push_back(std::move(call));
  }
}

Status CheckPlain(std::string_view what, std::string_view text) {
  for (const std::string_view token : {kBosText, kEosText, kThinkBegin, kThinkEnd, kDsmlText}) {
    if (text.find(token) != std::string_view::npos) {
      return Refuse(what, text, fmt::format("no {} inside", token));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Message> ParseAnswer(std::string_view text, ThinkingMode mode) {
  const std::string calls_begin = fmt::format("\n\n{}", kCallsBegin);
  Reader reader(text);
  Message answer;
  answer.role = Role::kAssistant;
  if (mode == ThinkingMode::kThinking) {
    const Reader::Piece thought = reader.ReadUntil({kThinkEnd, calls_begin});
    if (thought.stop != kThinkEnd) return Refuse("reasoning", thought.text, "</think> after it");
    EMBERKV_RETURN_IF_ERROR(CheckPlain("reasoning", thought.text));
    answer.reasoning_content = thought.text;
  }
  const Reader::Piece content = reader.ReadUntil({kEosText, calls_begin});
  if (content.stop.empty()) return Refuse("content", content.text, "the EOS token after it");
  EMBERKV_RETURN_IF_ERROR(CheckPlain("content", content.text));
  answer.content.push_back({std::string(content.text), false});
  if (content.stop == calls_begin) {
    EMBERKV_RETURN_IF_ERROR(ParseCalls(&reader, &answer.tool_calls));
    const Reader::Piece tail = reader.ReadUntil({kEosText});
    if (!tail.text.empty()) return Refuse("text after tool calls", tail.text, "the EOS token");
  }
  if (!reader.rest().empty()) return Refuse("text after the EOS token", reader.rest(), "nothing");
  return answer;
}

}  // namespace emberkv
