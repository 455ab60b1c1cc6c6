#include "cli/prompt_text.h"

#include <cstdint>

#include "base/mapped_file.h"
#include "prompt/chat_prompt.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

constexpr uint64_t kMaxDocumentBytes = uint64_t{1} << 31;

// What the session has computed of earlier turns, reasoning included, stays as it is.
EncodeOptions OptionsOf(const ChatForm& form) {
  return {.thinking_mode = form.thinking_mode, .drops_past_thinking = false};
}

}  // namespace

Result<std::string> ReadDocuments(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) {
    EMBERKV_ASSIGN_OR_RETURN(const std::string document, ReadTextFile(file, kMaxDocumentBytes));
    text += document;
  }
  return text;
}

bool StartsNewLine(std::string_view before, bool is_first, std::string_view prompt) {
  if (prompt.empty() || (is_first && before.empty())) return false;
  return !prompt.starts_with('\n') && !before.ends_with('\n');
}

std::string FirstText(const std::string& documents, const std::string& prompt) {
  return documents + (StartsNewLine(documents, true, prompt) ? "\n" : "") + prompt;
}

Result<std::string> FirstChatText(const ChatForm& form, const std::string& documents,
                                  const std::string& prompt) {
  std::vector<Message> messages;
  if (!form.system.empty()) messages.push_back(TextMessage(Role::kSystem, form.system));
  messages.push_back(TextMessage(Role::kUser, FirstText(documents, prompt)));
  return EncodeMessages(messages, OptionsOf(form));
}

Result<std::string> NextChatText(const ChatForm& form, std::string_view answer, bool ended,
                                 const std::string& prompt) {
  std::string text;
  if (!ended) {
    const bool in_thought = form.thinking_mode == ThinkingMode::kThinking &&
                            answer.find(kThinkEnd) == std::string_view::npos;
    if (in_thought) text += kThinkEnd;
    text += kEosText;
  }
  // The turns before are in the session; that there are any is all that counts here.
  const std::vector<Message> context = {TextMessage(Role::kUser, ""),
                                        TextMessage(Role::kAssistant, "")};
  const std::vector<Message> next = {TextMessage(Role::kUser, prompt)};
  EMBERKV_ASSIGN_OR_RETURN(const std::string turn,
                           EncodeContinuation(context, next, OptionsOf(form)));
  return text + turn;
}

}  // namespace emberkv
