#include "prompt/message_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/json_text.h"
#include "prompt/python_json.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
struct Name {
  std::string_view text;
  T meaning;
};

constexpr Name<Role> kRoles[] = {{"system", Role::kSystem},
                                 {"user", Role::kUser},
                                 {"assistant", Role::kAssistant},
                                 {"tool", Role::kTool},
                                 {"latest_reminder", Role::kLatestReminder}};
constexpr Name<Task> kTasks[] = {{"action", Task::kAction},       {"query", Task::kQuery},
                                 {"authority", Task::kAuthority}, {"domain", Task::kDomain},
                                 {"title", Task::kTitle},         {"read_url", Task::kReadUrl}};
constexpr Name<ThinkingMode> kModes[] = {{"chat", ThinkingMode::kChat},
                                         {"thinking", ThinkingMode::kThinking}};
constexpr Name<int> kEfforts[] = {{"low", 50}, {"high", 75}, {"max", 100}};

Status Refuse(const std::string& place, const Json& value, std::string_view rule) {
  return InvalidArgument(fmt::format("{} is {}; {}", place, ShowJson(value), rule));
}

template <class T, size_t N>
Result<T> Named(const Json& value, const std::string& place, const Name<T> (&names)[N],
                std::string_view also = "") {
  std::string allowed;
  for (const Name<T>& name : names) {
    if (value.is_string() && value.get_ref<const std::string&>() == name.text) return name.meaning;
    allowed += fmt::format("{}\"{}\"", allowed.empty() ? "" : ", ", name.text);
  }
  return Refuse(place, value, fmt::format("allowed: {}{}", also, allowed));
}

// A field that is absent reads as null.
const Json& Field(const Json& object, const char* name) {
  static const Json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

Result<std::string> Text(const Json& value, const std::string& place) {
  if (value.is_string()) return value.get<std::string>();
  return Refuse(place, value, "it must be a text");
}

Result<std::string> OptionalText(const Json& object, const char* name, const std::string& place) {
  const Json& value = Field(object, name);
  if (value.is_null()) return std::string();
  return Text(value, fmt::format("{}.{}", place, name));
}

Result<std::string> ObjectText(const Json& value, const std::string& place) {
  if (!value.is_object()) return Refuse(place, value, "it must be an object");
  Result<std::string> text = PythonJson(value);
  if (!text.ok()) return text.status().WithContext(place);
  return text;
}

Result<ContentPart> PartFromJson(const Json& value, const std::string& place) {
  if (!value.is_object()) return Refuse(place, value, "a content part must be an object");
  const Json& type = Field(value, "type");
  if (type == "image_url" || type == "image" || type == "input_image") return ContentPart{"", true};
  if (type != "text") {
    return Refuse(place + ".type", type,
                  "allowed: \"text\", \"image_url\", \"image\", \"input_image\"");
  }
  EMBERKV_ASSIGN_OR_RETURN(std::string text, Text(Field(value, "text"), place + ".text"));
  return ContentPart{std::move(text), false};
}

Status ReadContent(const Json& object, const std::string& place, Message* message) {
  const auto found = object.find("content");
  if (found == object.end()) return Status::Ok();
  const std::string content_place = place + ".content";
  const bool may_be_null = message->role == Role::kAssistant || message->role == Role::kSystem;
  if (found->is_null() && may_be_null) return Status::Ok();
  if (found->is_string()) {
    message->content.push_back({found->get<std::string>(), false});
    return Status::Ok();
  }
  if (!found->is_array()) {
    return Refuse(content_place, *found, "it must be a text or a list of content parts");
  }
  for (size_t i = 0; i < found->size(); ++i) {
    const Json& part = (*found)[i];
    // The format shows the model only the parts of a tool's result that it knows.
    const bool is_known =
        part.is_object() && (Field(part, "type") == "text" || Field(part, "type") == "image_url");
    if (message->role == Role::kTool && part.is_object() && !is_known) continue;
    EMBERKV_ASSIGN_OR_RETURN(ContentPart read,
                             PartFromJson(part, fmt::format("{}[{}]", content_place, i)));
    message->content.push_back(std::move(read));
  }
  return Status::Ok();
}

Result<std::string> ToolFromJson(const Json& value, const std::string& place) {
  if (!value.is_object()) return Refuse(place, value, "it must be an object");
  const Json& type = Field(value, "type");
  if (!type.is_null() && type != "function") {
    return Refuse(place + ".type", type, "allowed: \"function\"");
  }
  const Json& function = Field(value, "function");
  EMBERKV_ASSIGN_OR_RETURN(std::string text, ObjectText(function, place + ".function"));
  EMBERKV_RETURN_IF_ERROR(Text(Field(function, "name"), place + ".function.name").status());
  for (const Json* object : {&value, &function}) {
    const Json& names = Field(*object, "namespace");
    if (!names.is_null()) {
      return Refuse(place + ".namespace", names, "namespaces of tools are not supported");
    }
  }
  return text;
}

Result<ToolCall> ToolCallFromJson(const Json& value, const std::string& place) {
  if (!value.is_object()) return Refuse(place, value, "it must be an object");
  const Json& function = Field(value, "function");
  const std::string function_place = place + ".function";
  if (!function.is_object()) return Refuse(function_place, function, "it must be an object");
  ToolCall call;
  EMBERKV_ASSIGN_OR_RETURN(call.id, OptionalText(value, "id", place));
  EMBERKV_ASSIGN_OR_RETURN(call.name, Text(Field(function, "name"), function_place + ".name"));
  const Json& arguments = Field(function, "arguments");
  if (arguments.is_object()) {
    EMBERKV_ASSIGN_OR_RETURN(call.arguments, ObjectText(arguments, function_place + ".arguments"));
  } else if (arguments.is_string()) {
    call.arguments = arguments.get<std::string>();
  } else {
    return Refuse(function_place + ".arguments", arguments,
                  "it must be a text, which holds a JSON object, or an object");
  }
  return call;
}

// The list `name` of an object, element by element; null is an empty one.
template <class T, class Read>
Status ReadList(const Json& object, const char* name, const std::string& place, const Read& read,
                std::vector<T>* list) {
  const Json& values = Field(object, name);
  if (values.is_null()) return Status::Ok();
  const std::string list_place = fmt::format("{}.{}", place, name);
  if (!values.is_array()) return Refuse(list_place, values, "it must be a list");
  for (size_t i = 0; i < values.size(); ++i) {
    EMBERKV_ASSIGN_OR_RETURN(T element, read(values[i], fmt::format("{}[{}]", list_place, i)));
    list->push_back(std::move(element));
  }
  return Status::Ok();
}

// Fields that only some roles have. Empty ones say nothing and may stand anywhere.
Status CheckFields(const Json& object, const std::string& place, Role role) {
  struct Known {
    std::string_view name;
    std::optional<Role> role;  // none: all
  };
  static constexpr Known kKnown[] = {
      {"role", {}},
      {"content", {}},
      {"name", {}},
      {"tools", {}},
      {"response_format", {Role::kSystem}},
      {"reasoning_content", {Role::kAssistant}},
      {"tool_calls", {Role::kAssistant}},
      {"wo_eos", {Role::kAssistant}},
      {"tool_call_id", {Role::kTool}},
      {"task", {Role::kUser}},
  };
  for (const auto& [name, value] : object.items()) {
    const bool is_empty = value.is_null() || value == false || value == "" ||
                          (value.is_structured() && value.empty());
    if (is_empty) continue;
    const auto found =
        std::find_if(std::begin(kKnown), std::end(kKnown),
                     [&, &key = name](const Known& known) { return known.name == key; });
    if (found == std::end(kKnown)) {
      return Refuse(fmt::format("{}.{}", place, name), value, "this field is not known here");
    }
    if (found->role && *found->role != role) {
      return Refuse(fmt::format("{}.{}", place, name), value,
                    "this field is not allowed in a message of this role");
    }
  }
  return Status::Ok();
}

Result<Message> MessageFromJson(const Json& object, const std::string& place) {
  if (!object.is_object()) return Refuse(place, object, "a message must be an object");
  Message message;
  EMBERKV_ASSIGN_OR_RETURN(message.role, Named(Field(object, "role"), place + ".role", kRoles));
  EMBERKV_RETURN_IF_ERROR(CheckFields(object, place, message.role));
  EMBERKV_RETURN_IF_ERROR(ReadContent(object, place, &message));
  EMBERKV_RETURN_IF_ERROR(ReadList(object, "tools", place, ToolFromJson, &message.tools));
  EMBERKV_RETURN_IF_ERROR(
      ReadList(object, "tool_calls", place, ToolCallFromJson, &message.tool_calls));
  EMBERKV_ASSIGN_OR_RETURN(message.reasoning_content,
                           OptionalText(object, "reasoning_content", place));
  EMBERKV_ASSIGN_OR_RETURN(message.tool_call_id, OptionalText(object, "tool_call_id", place));
  const Json& format = Field(object, "response_format");
  if (!format.is_null() && !(format.is_structured() && format.empty())) {
    EMBERKV_ASSIGN_OR_RETURN(message.response_format,
                             ObjectText(format, place + ".response_format"));
  }
  const Json& unfinished = Field(object, "wo_eos");
  if (!unfinished.is_null() && !unfinished.is_boolean()) {
    return Refuse(place + ".wo_eos", unfinished, "it must be true or false");
  }
  message.is_unfinished = unfinished == true;
  const Json& task = Field(object, "task");
  if (!task.is_null()) {
    EMBERKV_ASSIGN_OR_RETURN(message.task, Named(task, place + ".task", kTasks));
  }
  return message;
}

}  // namespace

Result<std::vector<Message>> MessagesFromJson(const Json& messages) {
  if (!messages.is_array()) return Refuse("messages", messages, "it must be a list");
  std::vector<Message> read;
  for (size_t i = 0; i < messages.size(); ++i) {
    EMBERKV_ASSIGN_OR_RETURN(Message message,
                             MessageFromJson(messages[i], fmt::format("messages[{}]", i)));
    read.push_back(std::move(message));
  }
  return read;
}

Json AnswerToJson(const Message& answer) {
  std::string content;
  for (const ContentPart& part : answer.content) content += part.text;
  Json calls = Json::array();
  for (const ToolCall& call : answer.tool_calls) {
    Json written;
    if (!call.id.empty()) written["id"] = call.id;
    written["type"] = "function";
    written["function"]["name"] = call.name;
    written["function"]["arguments"] = call.arguments;
    calls.push_back(std::move(written));
  }
  Json json;
  json["role"] = "assistant";
  json["content"] = std::move(content);
  json["reasoning_content"] = answer.reasoning_content;
  json["tool_calls"] = std::move(calls);
  return json;
}

Result<ThinkingMode> ThinkingModeFromJson(const Json& value) {
  return Named(value, "thinking_mode", kModes);
}

Result<int> ReasoningEffortFromJson(const Json& value) {
  if (value.is_null()) return 75;
  if (value.is_number_integer() && value >= 1 && value <= 100) return value.get<int>();
  return Named(value, "reasoning_effort", kEfforts, "an integer from 1 to 100, ");
}

}  // namespace emberkv
