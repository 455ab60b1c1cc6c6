// The fields that chat and completion requests share: model, sampling, length, stop strings, streaming, the
// cache, and those that are only understood to be refused.
//
// Pure functions of their arguments, any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "server/generation.h"
#include "server/request_fields.h"
#include "server/served_model.h"

namespace emberkv {

inline constexpr int64_t kMaxAnswersPerPrompt = 16;
inline constexpr size_t kMaxStopStrings = 16;

// The body as JSON; *error when it is none, or beyond the limits of ParseJson.
std::optional<nlohmann::ordered_json> ParseBody(std::string_view body, std::optional<ApiError>* error);

// "model": that of the server, or nothing. Also alone, for requests that generate nothing.
void ReadModelName(const ServedModel& model, RequestFields* fields);

// All of them. `default_max_tokens` where the request gives no length.
void ReadGenerationFields(const ServedModel& model, int64_t default_max_tokens, RequestFields* fields,
                          GenerationRequest* request);

// Refuses prompts that are empty, hold ids the model does not have, or leave no room for an answer. `name`: the
// field that they come from.
void CheckPrompts(const ServedModel& model, std::string_view name, const GenerationRequest& request,
                  RequestFields* fields);

}  // namespace emberkv
