#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

// Expected texts are those of Python's bytes.decode("utf-8", "replace").
TEST(Utf8, ReplacesEachMaximalSubpart) {
  EXPECT_EQ(RepairUtf8("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(RepairUtf8("\xE4\xB8\xE4\xB8\xAD"), "\uFFFD\u4E2D");
  EXPECT_EQ(RepairUtf8("\xF0\x9F\x98z"), "\uFFFDz");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD") << "a surrogate";
  EXPECT_EQ(RepairUtf8("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(RepairUtf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "beyond U+10FFFF";
  EXPECT_EQ(RepairUtf8("\xC0\xAF"), "\uFFFD\uFFFD");
}

TEST(Utf8, KeepsAndRoundTripsEveryCharacter) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_TRUE(IsWellFormedUtf8(text)) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(FirstUtf8Part(text).length, text.size());
    ASSERT_EQ(DecodeUtf8(text), c);
  }
}

TEST(Utf8, TellsACutCharacterFromABrokenOne) {
  EXPECT_TRUE(FirstUtf8Part("\xF0\x9F").is_cut);
  EXPECT_FALSE(FirstUtf8Part("\xF0\x9Fz").is_cut);
  EXPECT_FALSE(FirstUtf8Part("\x9F").is_cut);
  EXPECT_FALSE(FirstUtf8Part("\xED\xA0").is_cut) << "no byte can make a surrogate well-formed";
}

}  // namespace
}  // namespace emberkv
