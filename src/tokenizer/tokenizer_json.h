// Reads a tokenizer.json into the tables behind a Tokenizer. Private to this room.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenizer.h"

namespace emberkv {

struct Token {
  std::string text;   // as the file spells it
  std::string bytes;  // what it decodes to
  bool is_special = false;
};

struct TokenizerTables {
  std::vector<Token> tokens;  // by id
  std::unordered_map<std::string, int32_t> id_of;
  // Added tokens are looked for in two passes over the text: those marked `normalized` come second.
  AddedTokens first_added;
  AddedTokens second_added;
  PreTokenizer pretokenizer;
  Bpe bpe;
};

Result<std::shared_ptr<const TokenizerTables>> ParseTokenizerJson(std::string_view json);

}  // namespace emberkv
