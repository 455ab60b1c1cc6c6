// What a model wrote becomes a message again: reasoning, content, tool calls.
//
// A pure function of its arguments, any thread.
#pragma once

#include <string_view>

#include "base/status.h"
#include "prompt/message.h"

namespace emberkv {

// `text` is everything after the prompt of EncodeMessages, the EOS token's text included; after
// tool calls it may be missing. Refused, saying what was expected where: text that breaks the
// format. Arguments are what the model wrote: a value marked as JSON is not checked.
Result<Message> ParseAnswer(std::string_view text, ThinkingMode mode);

}  // namespace emberkv
