// The body of POST /v1/completions: checked and tokenized (docs/api.md).
//
// A pure function of its arguments, any thread. It takes time in proportion to the body: not for io threads.
#pragma once

#include <optional>
#include <string_view>

#include "server/generation.h"
#include "server/openai_error.h"
#include "server/served_model.h"

namespace emberkv {

// Fills *request; what is wrong with the body when something is, and *request is then unspecified.
std::optional<ApiError> ReadCompletionRequest(std::string_view body, const ServedModel& model,
                                              GenerationRequest* request);

}  // namespace emberkv
