// The prompt format of DeepSeek-V4.1: a conversation becomes the one text that the model continues.
// No template engine: the format is this code, and golden pairs of the official encoder hold it to
// every byte (docs/prompt_format.md).
//
// Pure functions of their arguments, any thread.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "prompt/message.h"

namespace emberkv {

struct EncodeOptions {
  ThinkingMode thinking_mode = ThinkingMode::kChat;
  int reasoning_effort = 75;        // 1 to 100; written in thinking mode only
  bool drops_past_thinking = true;  // earlier turns' reasoning; any message with tools keeps it
  bool adds_bos = true;
};

// The whole prompt. Refused: an effort out of range, the image token inside a text, a task on a
// message that continues the user message before it.
Result<std::string> EncodeMessages(std::span<const Message> messages, const EncodeOptions& options);

// What `messages` add to the prompt of `context`, which comes before them.
Result<std::string> EncodeContinuation(std::span<const Message> context,
                                       std::span<const Message> messages,
                                       const EncodeOptions& options);

}  // namespace emberkv
