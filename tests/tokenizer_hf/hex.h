// Bytes as hexadecimal digits and back: how texts of any bytes travel through lines and JSON here.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

namespace emberkv {

inline std::string FromHex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

inline std::string ToHex(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    out.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    out.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return out;
}

}  // namespace emberkv
