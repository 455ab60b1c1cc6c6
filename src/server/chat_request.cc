#include "server/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "prompt/message_json.h"
#include "server/generation_fields.h"
#include "server/prompt_tokens.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

// The length of an answer where the request names none.
constexpr int64_t kDefaultTokens = 4096;
constexpr int64_t kMaxTopLogprobs = 20;

// What a chat says, before it becomes a prompt.
struct Conversation {
  std::vector<Message> messages;
  EncodeOptions encode;
  bool offers_tools = false;
};

bool HasTools(const Message& message) { return !message.tools.empty(); }

void ReadMessages(RequestFields* fields, Conversation* chat) {
  const Json* value = fields->Find("messages");
  if (value == nullptr || !value->is_array() || value->empty()) {
    return fields->Fail("messages", value == nullptr ? Json() : *value, "it must be a list of at least one message");
  }
  Json list = *value;
  for (Json& message : list) {  // OpenAI's newer name of the system
    if (message.is_object() && message.contains("role") && message["role"] == "developer") message["role"] = "system";
  }
  Result<std::vector<Message>> messages = MessagesFromJson(list);
  if (!messages.ok()) return fields->Fail(InvalidRequest("messages", messages.status().message()));
  chat->messages = std::move(messages).value();
  for (size_t i = 0; i < chat->messages.size(); ++i) {
    const std::vector<ContentPart>& parts = chat->messages[i].content;
    if (std::none_of(parts.begin(), parts.end(), [](const ContentPart& part) { return part.is_image; })) continue;
    return fields->Fail(InvalidRequest(
        "messages", fmt::format("messages[{}].content has an image; allowed: text, as the model sees no images", i)));
  }
}

void ReadTools(RequestFields* fields, Conversation* chat) {
  const Json* tools = fields->Find("tools");
  const Json* choice = fields->Find("tool_choice");
  if (choice != nullptr && *choice != "none" && *choice != "auto") {
    fields->Fail("tool_choice", *choice, "allowed: \"none\", \"auto\", as no call can be forced");
  }
  fields->AllowOnly("parallel_tool_calls", {true}, "allowed: true, as the model decides how many calls it makes");
  if (fields->error()) return;
  std::vector<std::string> offered;
  if (tools != nullptr) {
    // Tools are read where the format has them: in a message.
    const Json carrier = Json::array({{{"role", "system"}, {"tools", *tools}}});
    const std::string place = "messages[0].";
    Result<std::vector<Message>> read = MessagesFromJson(carrier);
    if (!read.ok()) {
      std::string message = read.status().message();
      if (message.starts_with(place)) message.erase(0, place.size());
      return fields->Fail(InvalidRequest("tools", message));
    }
    offered = std::move(read->front().tools);
  }
  std::vector<Message>& messages = chat->messages;
  if (choice != nullptr && *choice == "none") {
    // What the model is not told of it does not call.
    for (Message& message : messages) message.tools.clear();
    return;
  }
  if (!offered.empty()) {
    if (messages.front().role != Role::kSystem) messages.insert(messages.begin(), TextMessage(Role::kSystem, ""));
    std::vector<std::string>& first = messages.front().tools;
    first.insert(first.end(), offered.begin(), offered.end());
  }
  chat->offers_tools = std::any_of(messages.begin(), messages.end(), HasTools);
}

// DeepSeek's API thinks unless it is told not to, and maps the efforts of others to its own.
void ReadThinking(const ServedModel& model, RequestFields* fields, Conversation* chat) {
  bool thinks = model.has_chat_format;
  const Json* thinking = fields->Find("thinking");
  if (thinking != nullptr) {
    RequestFields inner(*thinking, "thinking.");
    const Json* type = inner.Find("type");
    if (type == nullptr || (*type != "enabled" && *type != "disabled")) {
      inner.Fail("type", type == nullptr ? Json() : *type, "allowed: \"enabled\", \"disabled\"");
    } else {
      thinks = *type == "enabled";
    }
    inner.RefuseUnknown();
    if (inner.error()) return fields->Fail(*inner.error());
  }
  if (const Json* effort = fields->Find("reasoning_effort")) {
    Json mapped = *effort;
    if (mapped == "minimal") mapped = "low";
    if (mapped == "medium" || mapped == "xhigh") mapped = "high";
    if (mapped == "ultra") mapped = "max";
    if (mapped == "none") {
      if (thinking != nullptr && thinks) {
        return fields->Fail("reasoning_effort", *effort, "thinking.type is \"enabled\"; give one of the two");
      }
      thinks = false;
    } else if (const Result<int> read = ReasoningEffortFromJson(mapped); read.ok()) {
      if (thinking == nullptr) thinks = true;
      chat->encode.reasoning_effort = *read;
    } else {
      return fields->Fail("reasoning_effort", *effort,
                          "allowed: \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\", \"max\", "
                          "\"ultra\", an integer from 1 to 100");
    }
  }
  if (thinks && !model.has_chat_format) {
    return fields->Fail(InvalidRequest(thinking != nullptr ? "thinking" : "reasoning_effort",
                                       "thinking is asked for; this model has no thinking mode"));
  }
  chat->encode.thinking_mode = thinks ? ThinkingMode::kThinking : ThinkingMode::kChat;
}

void ReadLogprobs(RequestFields* fields, GenerationRequest* request) {
  bool wants = false;
  fields->Read("logprobs", &wants);
  int64_t top = 0;
  fields->Read("top_logprobs", 0, kMaxTopLogprobs, &top);
  if (top > 0 && !wants) fields->Fail("top_logprobs", top, "allowed with \"logprobs\": true only");
  if (wants) request->options.top_logprobs = static_cast<int>(top);
}

void ReadResponseFormat(RequestFields* fields) {
  const Json* format = fields->Find("response_format");
  if (format == nullptr) return;
  RequestFields inner(*format, "response_format.");
  const Json* type = inner.Find("type");
  if (type == nullptr || *type != "text") {
    inner.Fail("type", type == nullptr ? Json() : *type,
               "allowed: \"text\", as answers are not held to a grammar: ask for JSON in a message");
  }
  inner.RefuseUnknown();
  if (inner.error()) fields->Fail(*inner.error());
}

void ReadRemainingFields(RequestFields* fields) {
  fields->AllowOnly("store", {false}, "allowed: false, as answers are not kept");
  fields->AllowOnly("service_tier", {"auto", "default"}, "allowed: \"auto\", \"default\"");
  fields->AllowOnly("modalities", {Json::array({"text"})}, "allowed: [\"text\"]");
  fields->AllowOnly("verbosity", {"medium"}, "allowed: \"medium\", as verbosity is not supported");
  for (const char* name : {"metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}) {
    fields->Ignore(name);
  }
  fields->Refuse("functions", "it is not supported: use tools");
  fields->Refuse("function_call", "it is not supported: use tool_choice");
  for (const char* name : {"audio", "prediction", "web_search_options"}) fields->Refuse(name, "it is not supported");
  fields->RefuseUnknown();
}

// Where the model is to go on writing.
bool AsksForAnswer(const std::vector<Message>& messages) {
  const Message& last = messages.back();
  switch (last.role) {
    case Role::kUser:
    case Role::kTool:
      return true;
    case Role::kSystem:
      return messages.size() > 1;
    case Role::kAssistant:
      return last.is_unfinished;
    case Role::kLatestReminder:
      break;
  }
  return false;
}

Status RenderChat(const ServedModel& model, const Conversation& chat, GenerationRequest* request) {
  if (!AsksForAnswer(chat.messages)) {
    return InvalidArgument(
        "messages ends without a question; allowed at the end: a user or tool message, a system message after others, "
        "an assistant message with \"wo_eos\": true");
  }
  EMBERKV_ASSIGN_OR_RETURN(PromptTokens prompt, EncodeChat(*model.engine, chat.messages, chat.encode));
  request->prompts.push_back(std::move(prompt.tokens));
  request->is_thinking = prompt.text.ends_with("<think>");
  request->think_end_token = model.think_end_token;
  request->parses_tool_calls = chat.offers_tools;
  return Status::Ok();
}

// Contents one after the other, each on a line of its own: what `emberkv run --prompt` makes of its prompts.
Status RenderPlain(const ServedModel& model, const Conversation& chat, GenerationRequest* request) {
  std::string text;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Message& message = chat.messages[i];
    if (HasTools(message) || !message.tool_calls.empty() || message.role == Role::kTool) {
      return InvalidArgument(fmt::format("messages[{}] has to do with tools; this model's prompt format has none", i));
    }
    for (const ContentPart& part : message.content) {
      if (!text.empty() && !text.ends_with('\n') && !part.text.empty() && !part.text.starts_with('\n')) text += '\n';
      text += part.text;
    }
  }
  EMBERKV_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, EncodePlain(*model.engine, text));
  request->prompts.push_back(std::move(tokens));
  return Status::Ok();
}

}  // namespace

std::optional<ApiError> ReadChatRequest(std::string_view body, const ServedModel& model,
                                        GenerationRequest* request) {
  *request = GenerationRequest();
  request->endpoint = Endpoint::kChat;
  std::optional<ApiError> error;
  const std::optional<Json> json = ParseBody(body, &error);
  if (!json) return error;
  RequestFields fields(*json);
  Conversation chat;
  ReadGenerationFields(model, kDefaultTokens, &fields, request);
  ReadMessages(&fields, &chat);
  ReadTools(&fields, &chat);
  ReadThinking(model, &fields, &chat);
  ReadLogprobs(&fields, request);
  ReadResponseFormat(&fields);
  ReadRemainingFields(&fields);
  if (fields.error()) return fields.error();

  const Status rendered = model.has_chat_format ? RenderChat(model, chat, request) : RenderPlain(model, chat, request);
  if (!rendered.ok()) {
    // What a message holds is the client's, be it wrong or too much.
    return InvalidRequest("messages", rendered.message());
  }
  CheckPrompts(model, "messages", *request, &fields);
  return fields.error();
}

}  // namespace emberkv
