// Any bytes as a tokenizer.json, as a change to a good one, and as text to encode. The first byte
// says which.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tokenizer/small_tokenizer_for_tests.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace emberkv {
namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

Tokenizer EncodingTokenizer() {
  nlohmann::json json = SmallTokenizerJson();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
      R"([!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  Result<Tokenizer> tokenizer = Tokenizer::Parse(json.dump());
  Require(tokenizer.ok());
  return *std::move(tokenizer);
}

void EncodeAndDecode(const Tokenizer& tokenizer, std::string_view text, bool keeps_text) {
  const Result<std::vector<int32_t>> ids = tokenizer.Encode(text);
  if (!ids.ok()) {
    Require(!keeps_text);  // only a pattern of the input's own may give up
    return;
  }
  const std::string decoded = tokenizer.Decode(*ids);
  if (keeps_text) Require(decoded == RepairUtf8(text));
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t id : *ids) streamed += decoder.Push(id);
  Require(streamed + decoder.Finish() == decoded);
}

void TryFile(const std::string& json) {
  const Result<Tokenizer> tokenizer = Tokenizer::Parse(json);
  if (!tokenizer.ok()) {
    Require(!tokenizer.status().message().empty());
    return;
  }
  EncodeAndDecode(*tokenizer, "abc <end> ab12\n\n  \u4E2D\xFF x'll", /*keeps_text=*/false);
}

}  // namespace
}  // namespace emberkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace emberkv;  // NOLINT
  static const Tokenizer tokenizer = EncodingTokenizer();
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) {
    TryFile(std::string(input));
  } else if (data[0] % 3 == 1) {
    // Changes what the input, a JSON merge patch, says; most inputs then get past the first checks.
    const nlohmann::json patch = nlohmann::json::parse(input, nullptr, /*allow_exceptions=*/false);
    if (!patch.is_object()) return 0;
    nlohmann::json json = SmallTokenizerJson();
    json.merge_patch(patch);
    TryFile(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    EncodeAndDecode(tokenizer, input, /*keeps_text=*/true);
  }
  return 0;
}
