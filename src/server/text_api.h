// The small questions of the API, answered at once: POST /tokenize, POST /detokenize, GET /v1/models and
// POST /v1/cache/explain (docs/api.md).
//
// Functions of their arguments and of the caches' state, any thread. They tokenize: not for io threads.
#pragma once

#include <string>
#include <string_view>

#include "server/openai_error.h"
#include "server/served_model.h"

namespace emberkv {

// Of {"prompt": text} or {"messages": [...]} with the chat's fields.
ApiReply TokenizeReply(std::string_view body, const ServedModel& model);

// Of {"tokens": [...]}.
ApiReply DetokenizeReply(std::string_view body, const ServedModel& model);

ApiReply ModelsReply(const ServedModel& model);
ApiReply ModelReply(std::string_view name, const ServedModel& model);  // GET /v1/models/NAME

// What a chat or completion body of `tenant`, the authenticated name, would find in the caches now, block by
// block. Extends no deadline, takes nothing.
ApiReply ExplainReply(std::string_view body, const ServedModel& model, const std::string& tenant);

}  // namespace emberkv
