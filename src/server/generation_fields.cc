#include "server/generation_fields.h"

#include <fmt/format.h>

#include <random>
#include <string>
#include <utility>

#include "prompt/python_json.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTokens = 1'000'000'000;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxNameBytes = 512;

void ReadLength(RequestFields* fields, GenerationRequest* request) {
  int64_t old_name = 0;
  int64_t new_name = 0;
  fields->Read("max_tokens", 1, kMostTokens, &old_name);
  fields->Read("max_completion_tokens", 1, kMostTokens, &new_name);
  if (old_name != 0 && new_name != 0 && old_name != new_name) {
    return fields->Fail("max_completion_tokens", new_name,
                        fmt::format("max_tokens is {}; both mean the same: give one", old_name));
  }
  if (old_name + new_name != 0) request->options.max_tokens = std::max(old_name, new_name);
}

void ReadStopStrings(RequestFields* fields, GenerationRequest* request) {
  const Json* value = fields->Find("stop");
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  bool is_good = list.size() <= kMaxStopStrings;
  for (const Json& text : list) {
    is_good = is_good && text.is_string() && !text.get_ref<const std::string&>().empty() &&
              text.get_ref<const std::string&>().size() <= kMaxStopBytes;
  }
  if (!is_good) {
    return fields->Fail("stop", *value,
                        fmt::format("allowed: a text or a list of up to {} texts, each of 1 to {} bytes",
                                    kMaxStopStrings, kMaxStopBytes));
  }
  request->options.stop_strings = list.get<std::vector<std::string>>();
}

void ReadSampling(RequestFields* fields, GenerationRequest* request) {
  SamplerOptions& sampler = request->options.sampler;
  sampler.temperature = 1;  // as everywhere in this API
  fields->Read("temperature", 0.0, 2.0, &sampler.temperature);
  fields->Read("top_p", 0.0, 1.0, &sampler.top_p);
  if (!(sampler.top_p > 0)) fields->Fail("top_p", sampler.top_p, "allowed: a number above 0, at most 1");
  const Json* seed = fields->Find("seed");
  if (seed == nullptr) {
    std::random_device random;
    sampler.seed = (uint64_t{random()} << 32) | random();
  } else if (seed->is_number_unsigned()) {
    sampler.seed = seed->get<uint64_t>();
  } else if (seed->is_number_integer()) {
    sampler.seed = static_cast<uint64_t>(seed->get<int64_t>());
  } else {
    fields->Fail("seed", *seed, "allowed: an integer of 64 bits");
  }
  constexpr std::string_view kNoPenalty = "allowed: 0, as penalties are not supported";
  fields->AllowOnly("frequency_penalty", {0}, kNoPenalty);
  fields->AllowOnly("presence_penalty", {0}, kNoPenalty);
  fields->AllowOnly("logit_bias", {Json::object()}, "allowed: {}, as biases are not supported");
}

void ReadStreaming(RequestFields* fields, GenerationRequest* request) {
  fields->Read("stream", &request->streams);
  const Json* options = fields->Find("stream_options");
  if (options == nullptr) return;
  if (!request->streams) return fields->Fail("stream_options", *options, "allowed with \"stream\": true only");
  RequestFields inner(*options, "stream_options.");
  inner.Read("include_usage", &request->includes_usage);
  inner.Ignore("include_obfuscation");
  inner.RefuseUnknown();
  if (inner.error()) fields->Fail(*inner.error());
}

void ReadCacheControl(RequestFields* fields, GenerationRequest* request) {
  std::string user, user_id, salt;
  fields->Read("user", kMaxNameBytes, &user);
  fields->Read("user_id", kMaxNameBytes, &user_id);
  if (!user.empty() && !user_id.empty() && user != user_id) {
    fields->Fail("user_id", user_id, "user is given too and says otherwise; both mean the same: give one");
  }
  if (user.empty()) user = user_id;
  if (const Json* own = fields->Find("emberkv")) {
    RequestFields inner(*own, "emberkv.");
    inner.Read("trace", &request->wants_trace);
    inner.Read("no_store", &request->no_store);
    inner.Read("cache_salt", kMaxNameBytes, &salt);
    if (const Json* mode = inner.Find("replay")) {
      const Result<ReplayMode> replay = ParseReplayMode(mode->is_string() ? mode->get<std::string>() : "");
      if (replay.ok()) {
        request->replay = *replay;
      } else {
        inner.Fail("replay", *mode, "allowed: \"bounded\", \"exact\", \"full\"");
      }
    }
    inner.RefuseUnknown();
    if (inner.error()) fields->Fail(*inner.error());
  }
  // The length tells where one ends: no two pairs make the same salt.
  if (!salt.empty() || !user.empty()) request->cache_salt = fmt::format("{}:{}{}", salt.size(), salt, user);
}

}  // namespace

std::optional<Json> ParseBody(std::string_view body, std::optional<ApiError>* error) {
  Result<Json> json = ParseJson(body);
  if (json.ok()) return std::move(json).value();
  *error = InvalidRequest("", fmt::format("the body is refused: {}", json.status().message()));
  return std::nullopt;
}

void ReadModelName(const ServedModel& model, RequestFields* fields) {
  std::string name = model.name;
  fields->Read("model", kMaxNameBytes, &name);
  if (name == model.name) return;
  fields->Fail({404, fmt::format("model is {}; this server has \"{}\"", ShowJson(Json(name)), model.name), "model",
                "model_not_found"});
}

void ReadGenerationFields(const ServedModel& model, int64_t default_max_tokens, RequestFields* fields,
                          GenerationRequest* request) {
  ReadModelName(model, fields);
  request->max_context = model.engine->max_context();
  request->options.max_tokens = default_max_tokens;
  ReadLength(fields, request);
  ReadStopStrings(fields, request);
  ReadSampling(fields, request);
  int64_t n = 1;
  fields->Read("n", 1, kMaxAnswersPerPrompt, &n);
  request->n = static_cast<int>(n);
  ReadStreaming(fields, request);
  ReadCacheControl(fields, request);
}

void CheckPrompts(const ServedModel& model, std::string_view name, const GenerationRequest& request,
                  RequestFields* fields) {
  if (fields->error()) return;
  const int vocab_size = model.engine->config().vocab_size;
  for (const std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.empty()) {
      return fields->Fail(InvalidRequest(std::string(name), fmt::format("{} has no tokens; allowed: at least one", name)));
    }
    for (const int32_t token : prompt) {
      if (token >= 0 && token < vocab_size) continue;
      return fields->Fail(InvalidRequest(
          std::string(name), fmt::format("{} has the token {}; allowed: 0 to {}", name, token, vocab_size - 1)));
    }
    const auto tokens = static_cast<int64_t>(prompt.size());
    if (tokens < request.max_context) continue;
    return fields->Fail(InvalidRequest(
        std::string(name),
        fmt::format("this model's context is {} tokens, of which one at least is the answer's; {} has {} tokens",
                    request.max_context, name, tokens),
        "context_length_exceeded"));
  }
}

}  // namespace emberkv
