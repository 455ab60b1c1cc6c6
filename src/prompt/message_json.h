// Messages in the JSON form of the OpenAI and DeepSeek APIs, to and from the typed ones.
//
// A field is refused, by its path, when it has the wrong type or when leaving it out would change
// what the model reads. Fields that are null are as good as absent. `name` is accepted and not
// used. Pure functions of their arguments, any thread. Values should come from ParseJson, which
// bounds them.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "prompt/message.h"

namespace emberkv {

Result<std::vector<Message>> MessagesFromJson(const nlohmann::ordered_json& messages);

// An assistant message as an answer's JSON: role, content, reasoning_content, tool_calls.
nlohmann::ordered_json AnswerToJson(const Message& answer);

// "chat" or "thinking".
Result<ThinkingMode> ThinkingModeFromJson(const nlohmann::ordered_json& value);

// An integer from 1 to 100; "low" 50, "high" 75, "max" 100; null is "high".
Result<int> ReasoningEffortFromJson(const nlohmann::ordered_json& value);

}  // namespace emberkv
