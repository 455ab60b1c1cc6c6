#include "server/logprob_json.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr double kLeast = -9999;  // what JSON has no number for

double Finite(double logprob) { return logprob > kLeast ? logprob : kLeast; }

std::string TextOf(const Engine& engine, int32_t token) { return engine.Decode(std::span(&token, 1)); }

Json TokenJson(const Engine& engine, int32_t token, double logprob) {
  const std::string text = TextOf(engine, token);
  Json json;
  json["token"] = text;
  json["logprob"] = Finite(logprob);
  json["bytes"] = nullptr;
  if (text.find(kReplacement) == std::string::npos) {
    json["bytes"] = Json::array();
    for (const char c : text) json["bytes"].push_back(static_cast<unsigned char>(c));
  }
  return json;
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

Json ChatLogprobs(const Engine& engine, std::span<const ReportedToken> tokens) {
  Json json = {{"content", nullptr}, {"reasoning_content", nullptr}};
  for (const ReportedToken& token : tokens) {
    Json entry = TokenJson(engine, token.sampled.token, token.sampled.logprob.value_or(kLeast));
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : token.sampled.alternatives) {
      entry["top_logprobs"].push_back(TokenJson(engine, other.token, other.logprob));
    }
    json[token.is_reasoning ? "reasoning_content" : "content"].push_back(std::move(entry));
  }
  return json;
}

Json CompletionLogprobs(const Engine& engine, std::span<const ReportedToken> tokens, int64_t* offset) {
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  for (const ReportedToken& token : tokens) {
    const std::string text = TextOf(engine, token.sampled.token);
    json["tokens"].push_back(text);
    json["token_logprobs"].push_back(Finite(token.sampled.logprob.value_or(kLeast)));
    Json top = Json::object();
    for (const TokenLogprob& other : token.sampled.alternatives) {
      top[TextOf(engine, other.token)] = Finite(other.logprob);
    }
    json["top_logprobs"].push_back(std::move(top));
    json["text_offset"].push_back(*offset);
    *offset += CountCharacters(text);
  }
  return json;
}

}  // namespace emberkv
