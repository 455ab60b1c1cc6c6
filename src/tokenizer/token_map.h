// Engram's token compression: token ids that mean the same text share one compressed id.
//
// The text of each token is normalised (case, accents, compatibility forms, spaces); equal results
// get the same compressed id, in order of first appearance. Engram hashes compressed ids, and its
// multipliers depend on how many there are, so a map with another count is a map for another model.
// A TokenMap is an immutable value: any thread may read it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace emberkv {

class TokenMap {
 public:
  // Refuses an empty list, and values that are not all of 0 ... n - 1 for some n.
  static Result<TokenMap> FromIds(std::vector<int32_t> ids);

  // The map covers the ids of the tokenizer. A model's vocab_size may be larger: the ids beyond
  // stand for no text, they have no compressed id, and a prompt with one of them must be refused.
  bool Contains(int64_t token) const {
    return token >= 0 && token < static_cast<int64_t>(ids_.size());
  }
  int32_t operator[](int64_t token) const { return ids_[static_cast<size_t>(token)]; }

  std::span<const int32_t> ids() const { return ids_; }
  int32_t num_compressed() const { return num_compressed_; }

 private:
  TokenMap(std::vector<int32_t> ids, int32_t num_compressed)
      : ids_(std::move(ids)), num_compressed_(num_compressed) {}

  std::vector<int32_t> ids_;
  int32_t num_compressed_;
};

// Reads token_map.json: the list of compressed ids by token id.
Result<TokenMap> LoadTokenMap(const std::string& path);

Result<TokenMap> DeriveTokenMap(const Tokenizer& tokenizer);

// The map for the model in `model_dir`: its token_map.json if there is one, else derived from
// `tokenizer` (may be null). Refused when neither exists, when it has more than `vocab_size` ids or
// fewer than the tokenizer, and unless its count is `expected_count`
// (engram_compressed_vocab_size).
Result<TokenMap> TokenMapFor(const std::string& model_dir, const Tokenizer* tokenizer,
                             int64_t vocab_size, int64_t expected_count);

// The key of one token's text (well-formed UTF-8): NFKC, NFD, accents stripped, lowercase, runs of
// [ \t\r\n] as one space, trimmed unless one space is all there is.
Result<std::string> NormalizeForEngram(std::string_view text);

}  // namespace emberkv
