#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace emberkv {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 0x144> byte{};  // by character, -1 for none
};

// The other bytes take the characters from U+0100 on, in order.
constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const char32_t c = StandsForItself(b) ? static_cast<char32_t>(b) : next++;
    alphabet.character[static_cast<size_t>(b)] = c;
    alphabet.byte[c] = static_cast<int16_t>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string AlphabetCharacter(uint8_t byte) {
  std::string out;
  AppendUtf8(kAlphabet.character[byte], &out);
  return out;
}

std::optional<std::string> SpelledBytes(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const size_t length = FirstUtf8Part(text).length;
    const char32_t c = DecodeUtf8(text.substr(0, length));
    if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[c]));
    text.remove_prefix(length);
  }
  return bytes;
}

}  // namespace emberkv
