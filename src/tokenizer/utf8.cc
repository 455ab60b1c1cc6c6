#include "tokenizer/utf8.h"

#include <cstdint>

namespace emberkv {

Utf8Part FirstUtf8Part(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;  // what the second byte may be (Unicode, table 3-7)
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

bool IsWellFormedUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Part part = FirstUtf8Part(text);
    if (!part.is_well_formed) return false;
    text.remove_prefix(part.length);
  }
  return true;
}

std::string RepairUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Part part = FirstUtf8Part(text);
    out.append(part.is_well_formed ? text.substr(0, part.length) : kReplacementCharacter);
    text.remove_prefix(part.length);
  }
  return out;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

char32_t DecodeUtf8(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  char32_t code_point = lead & (0x7Fu >> character.size());
  for (const char c : character.substr(1)) {
    code_point = (code_point << 6) | (static_cast<uint8_t>(c) & 0x3Fu);
  }
  return code_point;
}

}  // namespace emberkv
