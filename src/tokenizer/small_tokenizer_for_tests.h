// A tokenizer.json small enough to change by hand in a test: the 256 bytes as ids 0-255, three
// merges.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "tokenizer/byte_alphabet.h"

namespace emberkv {

inline constexpr int32_t kIdAb = 256, kIdBc = 257, kIdAbc = 258, kIdEnd = 259;

inline nlohmann::json SmallTokenizerJson() {
  nlohmann::json vocab;
  for (int b = 0; b < 256; ++b) vocab[AlphabetCharacter(static_cast<uint8_t>(b))] = b;
  vocab["ab"] = kIdAb;
  vocab["bc"] = kIdBc;
  vocab["abc"] = kIdAbc;
  auto file = nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 259, "content": "<end>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": []},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+|\\S+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
              "byte_fallback": false, "ignore_merges": false,
              "merges": ["b c", "a b", "ab c"]}
  })");
  file["model"]["vocab"] = std::move(vocab);
  return file;
}

}  // namespace emberkv
