// The byte-level BPE tokenizer of a Hugging Face tokenizer.json: text to token ids and back.
//
// Encode gives the ids that the `tokenizers` package gives (without a post-processor's extra
// tokens). A file with a setting that is not implemented here is refused, with the field and its
// value. A Tokenizer is an immutable value, cheap to copy (copies share the tables): any thread may
// use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace emberkv {

struct TokenizerTables;

class Tokenizer {
 public:
  // `path` names a tokenizer.json or the folder that holds one.
  static Result<Tokenizer> Load(const std::string& path);
  static Result<Tokenizer> Parse(std::string_view json);

  // Added tokens, special ones too, are recognised inside the text. Ill-formed UTF-8 is encoded as
  // the text with U+FFFD in its place (tokenizer/utf8.h), like Python's
  // bytes.decode(errors="replace"). Fails for 2 GiB of text or more, and when a pre-tokenizer
  // pattern gives up.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;

  // Well-formed UTF-8: bytes that spell no character become U+FFFD. Ids without a token add
  // nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // Ids are 0 ... vocab_size() - 1, added tokens included. A model's vocab_size may be larger.
  int32_t vocab_size() const;
  bool Contains(int32_t id) const { return id >= 0 && id < vocab_size(); }

  // Below, Contains(id) must hold.
  bool IsSpecial(int32_t id) const;
  std::string_view TokenBytes(int32_t id) const;  // what it decodes to, maybe part of a character
  std::string_view TokenText(int32_t id) const;   // as the file spells it: "Ġthe"

  // By the spelling of the file.
  std::optional<int32_t> TokenId(std::string_view token_text) const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerTables> tables) : tables_(std::move(tables)) {}

  std::shared_ptr<const TokenizerTables> tables_;
};

// Decodes ids one by one and never cuts a character: what Push and Finish return, joined, is what
// Tokenizer::Decode makes of all ids. One decoder per answer; not for several threads at once.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  // The text that is certain after `id`: "" while a character is unfinished.
  std::string Push(int32_t id);

  // The rest, an unfinished character as U+FFFD. The decoder may then be used for the next answer.
  std::string Finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;  // the beginning of a character, at most 3 bytes
};

}  // namespace emberkv
