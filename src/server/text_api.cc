#include "server/text_api.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/generation_fields.h"
#include "server/prompt_tokens.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

ApiReply JsonReply(const Json& json) {
  return {200, json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

// The prompt of a body: a chat's, or that of a completion.
std::optional<ApiError> ReadAnyRequest(std::string_view body, const ServedModel& model, GenerationRequest* request) {
  std::optional<ApiError> error;
  const std::optional<Json> json = ParseBody(body, &error);
  if (!json) return error;
  if (json->is_object() && json->contains("messages")) return ReadChatRequest(body, model, request);
  error = ReadCompletionRequest(body, model, request);
  if (!error && request->prompts.size() > 1) {
    error = InvalidRequest("prompt", fmt::format("prompt has {} prompts; allowed: one", request->prompts.size()));
  }
  return error;
}

Json TokensJson(const std::vector<int32_t>& tokens, const ServedModel& model) {
  return {{"count", tokens.size()}, {"max_model_len", model.engine->max_context()}, {"tokens", tokens}};
}

Json ModelJson(const ServedModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "emberkv"},
          {"max_model_len", model.engine->max_context()}};
}

Json BlocksJson(const PrefixForecast& forecast) {
  Json blocks = Json::array();
  for (size_t i = 0; i < forecast.blocks.size(); ++i) {
    std::string_view where = "missing";
    if (forecast.tiers[i]) where = CacheTierName(*forecast.tiers[i]);
    blocks.push_back({{"key", DigestText(forecast.blocks[i].hash)},
                      {"where", where},
                      {"is_hit", i < forecast.num_found}});
  }
  return blocks;
}

}  // namespace

ApiReply TokenizeReply(std::string_view body, const ServedModel& model) {
  std::optional<ApiError> error;
  const std::optional<Json> json = ParseBody(body, &error);
  if (!json) return ErrorReply(*error);
  if (json->is_object() && json->contains("messages")) {
    GenerationRequest request;
    error = ReadChatRequest(body, model, &request);
    return error ? ErrorReply(*error) : JsonReply(TokensJson(request.prompts.front(), model));
  }
  RequestFields fields(*json);
  ReadModelName(model, &fields);
  bool adds_bos = true;
  fields.Read("add_special_tokens", &adds_bos);
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr || !prompt->is_string()) {
    fields.Fail("prompt", prompt == nullptr ? Json() : *prompt, "allowed: a text; or give messages");
  }
  fields.RefuseUnknown();
  if (fields.error()) return ErrorReply(*fields.error());
  const std::string& text = prompt->get_ref<const std::string&>();
  const Result<std::vector<int32_t>> tokens =
      adds_bos ? EncodePlain(*model.engine, text) : model.engine->Encode(text);
  return tokens.ok() ? JsonReply(TokensJson(*tokens, model)) : ErrorReply(ErrorOf(tokens.status()));
}

ApiReply DetokenizeReply(std::string_view body, const ServedModel& model) {
  std::optional<ApiError> error;
  const std::optional<Json> json = ParseBody(body, &error);
  if (!json) return ErrorReply(*error);
  RequestFields fields(*json);
  ReadModelName(model, &fields);
  const Json* tokens = fields.Find("tokens");
  const int last = model.engine->config().vocab_size - 1;
  bool is_good = tokens != nullptr && tokens->is_array();
  for (size_t i = 0; is_good && i < tokens->size(); ++i) {
    const Json& token = (*tokens)[i];
    is_good = token.is_number_integer() && token >= 0 && token <= last;
  }
  if (!is_good) {
    fields.Fail("tokens", tokens == nullptr ? Json() : *tokens,
                fmt::format("allowed: a list of token ids from 0 to {}", last));
  }
  fields.RefuseUnknown();
  if (fields.error()) return ErrorReply(*fields.error());
  return JsonReply({{"prompt", model.engine->Decode(tokens->get<std::vector<int32_t>>())}});
}

ApiReply ModelsReply(const ServedModel& model) {
  return JsonReply({{"object", "list"}, {"data", Json::array({ModelJson(model)})}});
}

ApiReply ModelReply(std::string_view name, const ServedModel& model) {
  if (name == model.name) return JsonReply(ModelJson(model));
  return ErrorReply({404, fmt::format("model is {}; this server has \"{}\"", ShowJson(Json(name)), model.name), "model",
                     "model_not_found"});
}

ApiReply ExplainReply(std::string_view body, const ServedModel& model, const std::string& tenant) {
  GenerationRequest request;
  if (const std::optional<ApiError> error = ReadAnyRequest(body, model, &request)) return ErrorReply(*error);
  const std::vector<int32_t>& prompt = request.prompts.front();
  const PrefixForecast forecast =
      model.engine->Forecast({tenant, request.cache_salt}, prompt, request.replay);
  const uint64_t replayed_at = forecast.provenance.replayed_at;
  Json json;
  json["prompt_tokens"] = prompt.size();
  json["block_size"] = model.engine->layout().block_size;
  json["hit_tokens"] = forecast.resume.hit;
  json["replayed_tokens"] = forecast.resume.replayed();  // at most: none where the windows are alive
  json["computed_tokens"] = static_cast<int64_t>(prompt.size()) - forecast.resume.hit;
  json["replay"] = ReplayModeName(request.replay);
  json["provenance"] = replayed_at == 0 ? "canonical" : fmt::format("replayed@{}", replayed_at);
  json["miss_reason"] = forecast.miss_reason.empty() ? Json() : Json(forecast.miss_reason);
  json["blocks"] = BlocksJson(forecast);
  return JsonReply(json);
}

}  // namespace emberkv
