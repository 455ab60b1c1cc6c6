#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SplitRegex Compiled(std::string_view pattern) {
  Result<SplitRegex> regex = SplitRegex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status().ToString();
  return *std::move(regex);
}

std::vector<std::string> Words(const PreTokenizer& pretokenizer, std::string_view text) {
  RegexScratch scratch;
  std::string storage;
  std::vector<std::string_view> words;
  const Status status = pretokenizer.Split(text, &scratch, &storage, &words);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return {words.begin(), words.end()};
}

std::vector<std::string> SplitBy(std::string_view pattern, std::string_view text) {
  PreTokenizer pretokenizer;
  pretokenizer.AddStep({Compiled(pattern)});
  return Words(pretokenizer, text);
}

TEST(PreTokenizer, KeepsMatchesAndTheTextBetween) {
  EXPECT_THAT(SplitBy(R"(\p{N}{1,3})", "ab12345c"), ElementsAre("ab", "123", "45", "c"));
}

TEST(PreTokenizer, DropsWhatAStepDoesNotKeep) {
  PreTokenizer drops_matches, drops_rest;
  drops_matches.AddStep({Compiled(R"(\s+)"), false, true});
  drops_rest.AddStep({Compiled(R"(\d)"), true, false});
  EXPECT_THAT(Words(drops_matches, " a  b "), ElementsAre("a", "b"));
  EXPECT_THAT(Words(drops_rest, "a1b23"), ElementsAre("1", "2", "3"));
}

TEST(PreTokenizer, LookaheadEndsWithThePieceOfTheStepBefore) {
  PreTokenizer pretokenizer;
  pretokenizer.AddStep({Compiled("x")});
  pretokenizer.AddStep({Compiled(R"(\s+(?!\S)|\s+)")});
  // Seen alone, "a  " ends in spaces: all of them go together though x follows in the text.
  EXPECT_THAT(Words(pretokenizer, "a  xa  b"), ElementsAre("a", "  ", "x", "a", " ", " ", "b"));
}

TEST(PreTokenizer, PrefixSpaceGoesToEveryPieceWithoutOne) {
  PreTokenizer pretokenizer;
  pretokenizer.AddStep({Compiled(R"(\d+)")});
  pretokenizer.AddPrefixSpaces();
  pretokenizer.AddStep({Compiled(kByteLevelPattern)});
  EXPECT_THAT(Words(pretokenizer, "ab12 c"), ElementsAre(" ab", " 12", " c"));
}

TEST(SplitRegex, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_THAT(SplitBy(R"(\s)", "a\u00A0b\u0085c\u3000d"),
              ElementsAre("a", "\u00A0", "b", "\u0085", "c", "\u3000", "d"));
  EXPECT_THAT(SplitBy(R"(\s)", "a\u180Eb\u200Bc"), ElementsAre("a\u180Eb\u200Bc"));
  EXPECT_THAT(SplitBy(R"([^\s]+)", "a\u180Eb c"), ElementsAre("a\u180Eb", " ", "c"));
  EXPECT_THAT(SplitBy(R"(\S+)", "a\u180Eb c"), ElementsAre("a\u180Eb", " ", "c"));
}

TEST(SplitRegex, EmptyMatchesCutTheText) {
  EXPECT_THAT(SplitBy("(?=[A-Z])", "helloBigWorld"), ElementsAre("hello", "Big", "World"));
  EXPECT_THAT(SplitBy(R"(\d*)", "a12b"), ElementsAre("a", "12", "b"));
}

TEST(SplitRegex, AnchorsMatchAtEveryLine) {
  EXPECT_THAT(SplitBy("^.", "ab\ncd"), ElementsAre("a", "b\n", "c", "d"));
}

TEST(SplitRegex, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern :
       {R"(\w+)",      R"(\h)",   R"(\bx)",     R"([\w])",    R"([\S])", "[a&&b]",
        "[[:alpha:]]", "[]a]",    R"(\p{Han})", R"(\p{Xan})", R"(\pL)",  "(?m:a)",
        "(?i)a",       "(?<n>a)", "(*UTF)a",    "a{2}+",      "a{2}?",   "a{,3}",
        "{",           R"(\Ka)",  R"(\1)",      R"(\x41)",    R"(\Qa\E)"}) {
    const Result<SplitRegex> regex = SplitRegex::Compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_THAT(regex.status().message(), HasSubstr("not supported")) << pattern;
  }
}

TEST(SplitRegex, RefusesBrokenPatterns) {
  for (const char* pattern :
       {"(", "a)", "[a", "*", R"(\)", "[b-a]", R"(\p{Lx})", "\xFF", "(?<=a+)b"}) {
    EXPECT_EQ(SplitRegex::Compile(pattern).status().code(), StatusCode::kInvalidArgument)
        << pattern;
  }
  EXPECT_THAT(SplitRegex::Compile(std::string(70000, 'a')).status().message(), HasSubstr("70000"));
}

TEST(SplitRegex, GivesUpWithAnErrorOnEndlessBacktracking) {
  const SplitRegex regex = Compiled("(?:a|aa|aaa)+(?=[bc])");
  RegexScratch scratch;
  std::vector<SplitRegex::Span> matches;
  const Status status = regex.FindAll(std::string(2000, 'a'), &scratch, &matches);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
}

}  // namespace
}  // namespace emberkv
