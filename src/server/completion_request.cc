#include "server/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/generation_fields.h"
#include "server/prompt_tokens.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultTokens = 16;  // this endpoint's, since it was new
constexpr size_t kMaxPrompts = 128;
constexpr int64_t kMaxLogprobs = 5;

constexpr std::string_view kAllowedPrompts =
    "allowed: a text, a list of up to 128 texts, a list of token ids, a list of up to 128 lists of token ids";

bool IsTokens(const Json& value) {
  return value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), [](const Json& token) {
    return token.is_number_integer() && token >= 0 && token <= INT32_MAX;
  });
}

void ReadPrompts(const ServedModel& model, RequestFields* fields, GenerationRequest* request) {
  const Json* value = fields->Find("prompt");
  if (fields->error()) return;
  if (value == nullptr) return fields->Fail("prompt", Json(), kAllowedPrompts);
  const bool is_one = value->is_string() || IsTokens(*value);
  const Json list = is_one ? Json::array({*value}) : *value;
  if (!list.is_array() || list.empty() || list.size() > kMaxPrompts) {
    return fields->Fail("prompt", *value, kAllowedPrompts);
  }
  for (const Json& prompt : list) {
    if (IsTokens(prompt)) {
      request->prompts.push_back(prompt.get<std::vector<int32_t>>());
    } else if (prompt.is_string() && list.front().is_string()) {
      const std::string& text = prompt.get_ref<const std::string&>();
      if (text.empty()) return fields->Fail("prompt", prompt, "a prompt must not be empty");
      Result<std::vector<int32_t>> tokens = EncodePlain(*model.engine, text);
      if (!tokens.ok()) return fields->Fail(InvalidRequest("prompt", tokens.status().message()));
      request->prompts.push_back(std::move(tokens).value());
    } else {
      return fields->Fail("prompt", *value, kAllowedPrompts);
    }
  }
}

void ReadRemainingFields(RequestFields* fields, GenerationRequest* request) {
  fields->AllowOnly("echo", {false}, "allowed: false: a prompt is not given back, nor are its log-probabilities");
  fields->AllowOnly("suffix", {""}, "allowed: none, as text cannot be filled in before a suffix");
  fields->Refuse("prompt_logprobs", "log-probabilities of prompts are not supported");
  int64_t best_of = request->n;
  fields->Read("best_of", 1, kMaxAnswersPerPrompt, &best_of);
  if (best_of != request->n) fields->Fail("best_of", best_of, "allowed: the same as n, as answers are not ranked");
  if (fields->Find("logprobs") != nullptr) {
    int64_t top = 0;
    fields->Read("logprobs", 0, kMaxLogprobs, &top);
    request->options.top_logprobs = static_cast<int>(top);
  }
}

}  // namespace

std::optional<ApiError> ReadCompletionRequest(std::string_view body, const ServedModel& model,
                                              GenerationRequest* request) {
  *request = GenerationRequest();
  request->endpoint = Endpoint::kCompletion;
  std::optional<ApiError> error;
  const std::optional<Json> json = ParseBody(body, &error);
  if (!json) return error;
  RequestFields fields(*json);
  ReadGenerationFields(model, kDefaultTokens, &fields, request);
  ReadRemainingFields(&fields, request);
  fields.Ignore("prompt");  // read last: it costs most
  fields.RefuseUnknown();
  ReadPrompts(model, &fields, request);
  CheckPrompts(model, "prompt", *request, &fields);
  return fields.error();
}

}  // namespace emberkv
