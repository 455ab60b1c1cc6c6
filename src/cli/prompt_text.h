// The text that a prompt is made of: documents, then the prompt on a line of its own; or the same
// as a user message in the model's chat format.
//
// Used by the command's one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "prompt/message.h"

namespace emberkv {

// The files as they are, one after the other.
Result<std::string> ReadDocuments(const std::vector<std::string>& files);

// Whether a newline goes between `before`, which may be empty, and the prompt.
bool StartsNewLine(std::string_view before, bool is_first, std::string_view prompt);

// A first prompt with the documents before it.
std::string FirstText(const std::string& documents, const std::string& prompt);

struct ChatForm {
  std::string system;  // empty: no system message
  ThinkingMode thinking_mode = ThinkingMode::kChat;
};

// The whole text of a conversation's first prompt, BOS included.
Result<std::string> FirstChatText(const ChatForm& form, const std::string& documents,
                                  const std::string& prompt);

// The text that goes on after the model's `answer` with the next prompt. `ended`: the answer's last
// token is EOS; where it is not, the answer is closed first.
Result<std::string> NextChatText(const ChatForm& form, std::string_view answer, bool ended,
                                 const std::string& prompt);

}  // namespace emberkv
