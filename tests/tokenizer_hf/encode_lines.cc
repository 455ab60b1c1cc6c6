// The tokenizer as a filter, for compare_live.py: one hexadecimal text per line in, one answer out.
//
//   encode_lines encode TOKENIZER_JSON   {"ids", "text", "plain", "stream"}: the ids, and in
//   hexadecimal
//                                        what they decode to, without special tokens, and as a
//                                        stream
//   encode_lines normalize               the Engram key, in hexadecimal
//   encode_lines token-map TOKENIZER_JSON   reads nothing, writes the derived map
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "hex.h"
#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

namespace {

using emberkv::FromHex;
using emberkv::ToHex;

int Fail(const emberkv::Status& status) {
  std::cerr << status.ToString() << "\n";
  return 1;
}

int EncodeLines(const emberkv::Tokenizer& tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto ids = tokenizer.Encode(FromHex(line));
    if (!ids.ok()) return Fail(ids.status());
    emberkv::StreamDecoder decoder(tokenizer);
    std::string stream;
    for (const int32_t id : *ids) stream += decoder.Push(id);
    stream += decoder.Finish();
    std::cout << nlohmann::json{{"ids", *ids},
                                {"text", ToHex(tokenizer.Decode(*ids))},
                                {"plain", ToHex(tokenizer.Decode(*ids, /*skip_special=*/true))},
                                {"stream", ToHex(stream)}}
              << "\n";
  }
  return 0;
}

int NormalizeLines() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto key = emberkv::NormalizeForEngram(FromHex(line));
    if (!key.ok()) return Fail(key.status());
    std::cout << ToHex(*key) << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "normalize" && argc == 2) return NormalizeLines();
  if ((mode != "encode" && mode != "token-map") || argc != 3) {
    std::cerr << "usage: encode_lines encode|token-map TOKENIZER_JSON, or encode_lines normalize\n";
    return 2;
  }
  const auto tokenizer = emberkv::Tokenizer::Load(argv[2]);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  if (mode == "encode") return EncodeLines(*tokenizer);
  const auto map = emberkv::DeriveTokenMap(*tokenizer);
  if (!map.ok()) return Fail(map.status());
  std::cout << nlohmann::json(std::vector<int32_t>(map->ids().begin(), map->ids().end())) << "\n";
  return 0;
}
