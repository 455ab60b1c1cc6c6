// UTF-8 as the tokenizer meets it: text that may be cut or broken anywhere.
//
// Ill-formed bytes are read by the Unicode "maximal subpart" practice, as Python's errors="replace"
// and Rust's from_utf8_lossy do: each longest beginning of a character that cannot go on, or each
// byte that cannot begin one, counts as one U+FFFD. Free functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace emberkv {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// What stands at the beginning of a text that is not empty.
struct Utf8Part {
  size_t length = 0;            // bytes of the character, or of the ill-formed part
  bool is_well_formed = false;  // one whole character
  bool is_cut = false;  // ill-formed only because the text ends: more bytes could complete it
};
Utf8Part FirstUtf8Part(std::string_view text);

bool IsWellFormedUtf8(std::string_view text);

// `text` with U+FFFD for every ill-formed part.
std::string RepairUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// The code point of one well-formed character.
char32_t DecodeUtf8(std::string_view character);

}  // namespace emberkv
