#include "cli/recall_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kLine =
    R"({"id": "p1", "tokens": 512, "place": "depth:0.25", "prompt": "Q", "expected": " 1.",)"
    R"( "expected_ids": [4, 5, 1], "facts": 8})";

TEST(ParseRecallPrompts, ReadsLinesAndSkipsEmptyOnes) {
  const auto prompts = ParseRecallPrompts(std::string(kLine) + "\n\n" + std::string(kLine));
  ASSERT_TRUE(prompts.ok()) << prompts.status().ToString();
  ASSERT_EQ(prompts->size(), 2u);
  const RecallPrompt& prompt = prompts->back();
  EXPECT_EQ(prompt.id, "p1");
  EXPECT_EQ(prompt.tokens, 512);
  EXPECT_EQ(prompt.place, "depth:0.25");
  EXPECT_EQ(prompt.prompt, "Q");
  EXPECT_EQ(prompt.expected, " 1.");
  EXPECT_EQ(prompt.expected_ids, (std::vector<int32_t>{4, 5, 1}));
}

TEST(ParseRecallPrompts, RefusalsNameTheLine) {
  const std::string good(kLine);
  std::string no_ids = good, empty_ids = good, bad_type = good;
  no_ids.replace(no_ids.find("expected_ids"), 12, "expected_odd");
  empty_ids.replace(empty_ids.find("[4, 5, 1]"), 9, "[]");
  bad_type.replace(bad_type.find("512"), 3, "\"x\"");
  for (const std::string& bad : {std::string("not json"), std::string("[]"), no_ids, empty_ids,
                                 bad_type}) {
    const auto prompts = ParseRecallPrompts(good + "\n" + bad);
    ASSERT_FALSE(prompts.ok()) << bad;
    EXPECT_THAT(prompts.status().message(), HasSubstr("line 2: ")) << bad;
  }
}

TEST(RecallScore, CountsByLengthAndByGroupOfPlaces) {
  RecallScore score;
  const auto add = [&](int64_t tokens, const char* place, bool is_exact) {
    RecallPrompt prompt;
    prompt.tokens = tokens;
    prompt.place = place;
    score.Add(prompt, is_exact);
  };
  add(512, "start", true);
  add(512, "depth:0.25", true);
  add(2048, "depth:0.9", false);
  const auto json = nlohmann::json::parse(score.SummaryLine(1.5));
  EXPECT_EQ(json["prompts"], 3);
  EXPECT_EQ(json["exact"], 2);
  EXPECT_EQ(json["by_length"].dump(),
            R"([{"exact":2,"prompts":2,"tokens":512},{"exact":0,"prompts":1,"tokens":2048}])");
  EXPECT_EQ(json["by_place"].dump(),
            R"([{"exact":1,"place":"depth:*","prompts":2},{"exact":1,"place":"start","prompts":1}])");
  EXPECT_THAT(score.Table(), HasSubstr("  depth:*                  2      1   50.0 %\n"));
}

}  // namespace
}  // namespace emberkv
