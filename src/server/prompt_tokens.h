// A conversation as the tokens of its prompt, where only the format's own control tokens are control tokens.
//
// The text of the prompt is that of EncodeMessages to the byte. Where a message, a tool or a call holds the
// text of a control token (`<｜User｜>`, `</think>`), the tokenizer is given that text in two parts, so that
// it comes out as ordinary tokens which spell the same: a user's text cannot end its turn.
//
// Pure functions of their arguments, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "prompt/chat_prompt.h"
#include "prompt/message.h"

namespace emberkv {

struct PromptTokens {
  std::string text;
  std::vector<int32_t> tokens;
};

Result<PromptTokens> EncodeChat(const Engine& engine, std::span<const Message> messages,
                                const EncodeOptions& options);

// A text that is the whole prompt: control tokens in it are control tokens, and BOS goes first unless it is there.
Result<std::vector<int32_t>> EncodePlain(const Engine& engine, std::string_view text);

}  // namespace emberkv
