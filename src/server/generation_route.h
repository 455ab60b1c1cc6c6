// POST /v1/chat/completions and /v1/completions: from a body to a place in the queue, and from there to the
// answer and its line in the ledger.
#pragma once

#include <memory>

#include "server/api_call.h"
#include "server/generation.h"
#include "server/serving.h"

namespace emberkv {

// Parses and tokenizes on the calling thread, which is not an io thread, and returns when the request is
// queued or refused. `serving` outlives the call.
void AnswerGeneration(Endpoint endpoint, const std::shared_ptr<ApiCall>& call, Serving* serving);

}  // namespace emberkv
