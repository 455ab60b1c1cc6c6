#include "engine/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace emberkv {
namespace {

struct Outcome {
  std::string text;
  bool is_stopped = false;
  bool operator==(const Outcome&) const = default;
};

// `text` in pieces of `piece` bytes; asserts that nothing comes after the stop.
Outcome Filter(const std::vector<std::string>& stop_strings, std::string_view text, size_t piece) {
  StopFilter filter = std::move(StopFilter::Make(stop_strings)).value();
  Outcome outcome;
  for (size_t at = 0; at < text.size(); at += piece) {
    const bool was_stopped = filter.is_stopped();
    const std::string out = filter.Push(text.substr(at, piece));
    EXPECT_TRUE(!was_stopped || out.empty());
    outcome.text += out;
  }
  outcome.is_stopped = filter.is_stopped();
  outcome.text += filter.Finish();
  return outcome;
}

TEST(StopFilter, EndsTheTextBeforeTheStopStringHoweverItIsCut) {
  const struct {
    std::vector<std::string> stop_strings;
    std::string text;
    Outcome outcome;
  } cases[] = {
      {{}, "anything goes", {"anything goes", false}},
      {{"\n\n"}, "one\ntwo\n\nthree", {"one\ntwo", true}},
      {{"END"}, "ENENDX", {"EN", true}},
      {{"aab"}, "aaaab", {"aa", true}},
      {{"abab"}, "ababab", {"", true}},
      {{"ababc"}, "abababc", {"ab", true}},
      {{"stop"}, "stostosto", {"stostosto", false}},
      {{"abcd", "bc"}, "xabcd", {"xa", true}},    // bc is completed first
      {{"bcd", "abcd"}, "xabcd", {"x", true}},    // completed together: the longest
      {{"abcde", "cd"}, "abcdx", {"ab", true}},   // a stop inside the beginning of another
      {{"abcx", "cde"}, "abcde", {"ab", true}},   // the held beginning gives way to another
      {{"a"}, "a", {"", true}},
      {{"\xC3\xA9"}, "\xC3\xA8\xC3\xA9!", {"\xC3\xA8", true}},
  };
  for (const auto& c : cases) {
    for (size_t piece = 1; piece <= c.text.size(); ++piece) {
      EXPECT_EQ(Filter(c.stop_strings, c.text, piece), c.outcome) << c.text << " by " << piece;
    }
  }
}

TEST(StopFilter, HoldsBackOnlyWhatMayBeginAStopString) {
  StopFilter filter = std::move(StopFilter::Make({"\nQuestion:"})).value();
  EXPECT_EQ(filter.Push("482 913.\nQues"), "482 913.");
  EXPECT_EQ(filter.Push("t"), "");
  EXPECT_EQ(filter.Push(" and\nQ"), "\nQuest and");
  EXPECT_EQ(filter.Finish(), "\nQ");
}

TEST(StopFilter, StartsAfreshAfterFinish) {
  StopFilter filter = std::move(StopFilter::Make({"ab"})).value();
  EXPECT_EQ(filter.Push("xab"), "x");
  EXPECT_TRUE(filter.is_stopped());
  EXPECT_EQ(filter.Finish(), "");
  EXPECT_FALSE(filter.is_stopped());
  EXPECT_EQ(filter.Push("b-"), "b-");
}

TEST(StopFilter, RefusesAnEmptyStopString) {
  EXPECT_EQ(StopFilter::Make({"a", ""}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace emberkv
