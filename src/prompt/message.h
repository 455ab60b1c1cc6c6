// A conversation as the prompt format knows it: typed messages, without a trace of the JSON they
// came in.
//
// Plain values: any thread may own one.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emberkv {

enum class ThinkingMode { kChat, kThinking };

enum class Role {
  kSystem,
  kUser,
  kAssistant,
  kTool,            // the result of a tool call
  kLatestReminder,  // DeepSeek's own: facts of the moment, such as the date
};

// DeepSeek's classification tasks: the model answers a user message with one word.
enum class Task { kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

struct ContentPart {
  std::string text;
  bool is_image = false;  // its place is marked in the prompt; `text` is not used
};

struct ToolCall {
  std::string id;  // empty in a parsed answer: the model names none
  std::string name;
  std::string arguments;  // JSON text of an object; from a model, possibly not valid
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentPart> content;
  std::vector<std::string> tools;  // on offer: JSON text of each function, as the model reads it
  std::string response_format;     // system: JSON text, empty for none

  std::string reasoning_content;     // assistant
  std::vector<ToolCall> tool_calls;  // assistant
  bool is_unfinished = false;        // assistant: no EOS follows, the model goes on writing

  std::string tool_call_id;  // tool: the call this answers
  std::optional<Task> task;  // user
};

inline Message TextMessage(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({std::move(text), false});
  return message;
}

}  // namespace emberkv
