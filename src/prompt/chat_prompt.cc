#include "prompt/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "prompt/python_json.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kToolsIntroduction =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsEnd =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";
constexpr std::string_view kResponseFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// One turn of the prompt. A user turn takes in the user and tool messages that follow each other.
struct Turn {
  struct Block {
    std::string text;
    bool is_tool_result = false;
    std::string_view tool_call_id;
  };

  Role role = Role::kUser;
  const Message* message = nullptr;  // the first one
  std::vector<Block> blocks;         // one for each message
  std::optional<Task> task;
};

std::string_view TaskText(Task task) {
  switch (task) {
    case Task::kAction:
      return "<｜action｜>";
    case Task::kQuery:
      return "<｜query｜>";
    case Task::kAuthority:
      return "<｜authority｜>";
    case Task::kDomain:
      return "<｜domain｜>";
    case Task::kTitle:
      return "<｜title｜>";
    case Task::kReadUrl:
      return "<｜read_url｜>";
  }
  return "";
}

Result<std::string> ContentText(const Message& message) {
  std::string text;
  const char* separator = "";
  for (const ContentPart& part : message.content) {
    text += separator;
    separator = "\n\n";
    if (part.is_image) {
      text += kImageText;
    } else if (part.text.find(kImageText) == std::string::npos) {
      text += part.text;
    } else {
      // It would be taken for an image that is not there.
      return InvalidArgument(
          fmt::format("content has the text {}; an image is given as a content part", kImageText));
    }
  }
  return text;
}

// Appends the turns of `messages`. `place` names them in refusals.
Status AppendTurns(std::span<const Message> messages, const char* place, std::vector<Turn>* turns) {
  const size_t begin = turns->size();  // turns from here on are of these messages
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool is_tool = message.role == Role::kTool;
    const Role role = is_tool ? Role::kUser : message.role;
    Result<std::string> text = ContentText(message);
    if (!text.ok()) return text.status().WithContext(fmt::format("{}[{}]", place, i));
    Turn::Block block{*std::move(text), is_tool, message.tool_call_id};
    if (role == Role::kUser && turns->size() > begin && turns->back().role == Role::kUser &&
        (is_tool || !turns->back().task)) {
      if (message.task) {
        return InvalidArgument(
            fmt::format("{0}[{1}].task is given, but the message continues the user turn of "
                        "{0}[{2}]; a task is "
                        "allowed on a user message that begins its turn",
                        place, i, i - 1));
      }
      turns->back().blocks.push_back(std::move(block));
    } else {
      turns->push_back({role, &message, {std::move(block)}, message.task});
    }
  }
  return Status::Ok();
}

// Tool results in the order of the calls they answer, whatever order they came in.
void SortToolResults(std::vector<Turn>* turns) {
  std::map<std::string_view, size_t> order;
  for (Turn& turn : *turns) {
    if (turn.role == Role::kAssistant && !turn.message->tool_calls.empty()) {
      order.clear();
      for (size_t i = 0; i < turn.message->tool_calls.size(); ++i) {
        const std::string& id = turn.message->tool_calls[i].id;
        if (!id.empty()) order[id] = i;
      }
    }
    std::vector<size_t> places;
    std::vector<Turn::Block> results;
    for (size_t i = 0; i < turn.blocks.size(); ++i) {
      if (!turn.blocks[i].is_tool_result) continue;
      places.push_back(i);
      results.push_back(std::move(turn.blocks[i]));
    }
    const auto rank = [&](const Turn::Block& block) {
      const auto found = order.find(block.tool_call_id);
      return found == order.end() ? size_t{0} : found->second;
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const Turn::Block& a, const Turn::Block& b) { return rank(a) < rank(b); });
    for (size_t i = 0; i < places.size(); ++i) turn.blocks[places[i]] = std::move(results[i]);
  }
}

// The parameters of a call. Arguments that are no JSON object become one parameter of that name.
Result<Json> Parameters(const std::string& arguments) {
  Result<Json> value = ParseJson(arguments);
  // Some clients encode the text twice.
  if (value.ok() && value->is_string()) value = ParseJson(value->get<std::string>());
  if (value.ok() && value->is_object()) return value;
  if (!value.ok() && value.status().code() != StatusCode::kInvalidArgument) return value.status();
  return Json{{"arguments", arguments}};
}

Result<std::string> CallText(const ToolCall& call) {
  EMBERKV_ASSIGN_OR_RETURN(const Json parameters, Parameters(call.arguments));
  std::string text = fmt::format("{} name=\"{}\">\n", kInvokeBegin, call.name);
  const char* separator = "";
  for (const auto& [name, value] : parameters.items()) {
    std::string written;
    if (value.is_string()) {
      written = value.get<std::string>();
    } else {
      EMBERKV_ASSIGN_OR_RETURN(written, PythonJson(value));
    }
    text += fmt::format("{}{} name=\"{}\" string=\"{}\">{}{}>", separator, kParameterBegin, name,
                        value.is_string(), written, kParameterEnd);
    separator = "\n";
  }
  return text + fmt::format("\n{}>", kInvokeEnd);
}

// Renders turns one by one.
class Encoder {
 public:
  Encoder(std::vector<Turn> turns, const EncodeOptions& options)
      : turns_(std::move(turns)),
        thinks_(options.thinking_mode == ThinkingMode::kThinking),
        effort_(options.reasoning_effort) {
    drops_past_thinking_ =
        options.drops_past_thinking && std::none_of(turns_.begin(), turns_.end(), HasTools);
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (OpensAnswer(i)) last_opening_ = i;
    }
  }

  size_t num_turns() const { return turns_.size(); }

  Result<std::string> TurnText(size_t index) const {
    const Turn& turn = turns_[index];
    std::string text;
    const bool has_effort = index == 0 && thinks_;
    if (has_effort || turn.role == Role::kSystem) text += kSystemText;
    if (has_effort) {
      text += fmt::format(
          "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the "
          "reasoning)\n\n",
          effort_);
    }
    EMBERKV_ASSIGN_OR_RETURN(const std::string body, BodyText(index));
    return text + body + TransitionText(index);
  }

 private:
  // A tool message that begins a turn leaves only its result there.
  static bool HasTools(const Turn& turn) {
    return turn.message->role != Role::kTool && !turn.message->tools.empty();
  }

  // A system message after the first message asks for an answer, as a user's does.
  bool OpensAnswer(size_t index) const {
    return turns_[index].role == Role::kUser || (turns_[index].role == Role::kSystem && index > 0);
  }

  bool IsLastOpeningOrLater(size_t index) const {
    return !last_opening_ || index >= *last_opening_;
  }

  Result<std::string> BodyText(size_t index) const {
    const Turn& turn = turns_[index];
    if (turn.role == Role::kUser) return UserText(turn);
    std::string content = turn.blocks.front().text;
    if (turn.role == Role::kAssistant) return AssistantText(index, content);
    if (turn.role == Role::kLatestReminder) return std::string(kLatestReminderText) + content;
    if (!turn.message->tools.empty()) {
      content += fmt::format("\n\n{}{}{}", kToolsIntroduction, fmt::join(turn.message->tools, "\n"),
                             kToolsEnd);
    }
    if (!turn.message->response_format.empty()) {
      content += fmt::format("\n\n{}{}", kResponseFormat, turn.message->response_format);
    }
    return content;
  }

  static std::string UserText(const Turn& turn) {
    std::string text(kUserText);
    const char* separator = "";
    for (const Turn::Block& block : turn.blocks) {
      text += separator;
      separator = "\n\n";
      text += block.is_tool_result ? fmt::format("<tool_result>{}</tool_result>", block.text)
                                   : block.text;
    }
    return text;
  }

  Result<std::string> AssistantText(size_t index, const std::string& content) const {
    const Message& message = *turns_[index].message;
    std::string text;
    const bool answers_task = index > 0 && turns_[index - 1].task;
    if (thinks_ && !answers_task && (!drops_past_thinking_ || IsLastOpeningOrLater(index))) {
      text += message.reasoning_content;
      text += kThinkEnd;
    }
    text += content;
    if (!message.tool_calls.empty()) {
      text += fmt::format("\n\n{}>\n", kCallsBegin);
      for (const ToolCall& call : message.tool_calls) {
        EMBERKV_ASSIGN_OR_RETURN(const std::string call_text, CallText(call));
        text += call_text + '\n';
      }
      text += kCallsEnd;
    }
    if (!message.is_unfinished) text += kEosText;
    return text;
  }

  // What hands over to the assistant, when it is its turn next.
  std::string TransitionText(size_t index) const {
    if (index + 1 < turns_.size()) {
      const Role next = turns_[index + 1].role;
      if (next != Role::kAssistant && next != Role::kLatestReminder) return "";
    }
    const std::optional<Task> task = turns_[index].task;
    std::string text;
    if (task ? *task == Task::kAction : OpensAnswer(index)) {
      const bool begins_thought =
          thinks_ && (task || !drops_past_thinking_ || IsLastOpeningOrLater(index));
      text += kAssistantText;
      text += begins_thought ? kThinkBegin : kThinkEnd;
    }
    if (task) text += TaskText(*task);
    return text;
  }

  const std::vector<Turn> turns_;
  const bool thinks_;
  const int effort_;
  bool drops_past_thinking_ = true;
  std::optional<size_t> last_opening_;  // the last turn that opens an answer
};

}  // namespace

Result<std::string> EncodeMessages(std::span<const Message> messages,
                                   const EncodeOptions& options) {
  return EncodeContinuation({}, messages, options);
}

Result<std::string> EncodeContinuation(std::span<const Message> context,
                                       std::span<const Message> messages,
                                       const EncodeOptions& options) {
  if (options.reasoning_effort < 1 || options.reasoning_effort > 100) {
    return InvalidArgument(
        fmt::format("reasoning_effort is {}; it must be 1 to 100", options.reasoning_effort));
  }
  std::vector<Turn> turns;
  EMBERKV_RETURN_IF_ERROR(AppendTurns(context, "context", &turns));
  const size_t begin = turns.size();
  EMBERKV_RETURN_IF_ERROR(AppendTurns(messages, "messages", &turns));
  SortToolResults(&turns);

  std::string prompt;
  if (options.adds_bos && context.empty()) prompt += kBosText;
  const Encoder encoder(std::move(turns), options);
  for (size_t i = begin; i < encoder.num_turns(); ++i) {
    EMBERKV_ASSIGN_OR_RETURN(const std::string text, encoder.TurnText(i));
    prompt += text;
  }
  return prompt;
}

}  // namespace emberkv
