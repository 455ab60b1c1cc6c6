// The byte-level alphabet of GPT-2: one printable character stands for each of the 256 bytes, so
// that a vocabulary of text can name arbitrary bytes (a space is written "Ġ"). Free functions, any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emberkv {

// The character, in UTF-8, that stands for `byte`.
std::string AlphabetCharacter(uint8_t byte);

// The bytes that `text` (well-formed UTF-8) spells; nullopt if a character is not of the alphabet.
std::optional<std::string> SpelledBytes(std::string_view text);

}  // namespace emberkv
