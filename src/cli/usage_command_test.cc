#include "cli/usage_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

const std::string kGolden = EMBERKV_TEST_DATA "/ledger/ledger.jsonl";

std::string Text(const UsageOptions& options) {
  const Result<std::string> text = UsageText(options);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? *text : "";
}

TEST(UsageCommand, ShowsARowForEachGroupAndTheTotal) {
  EXPECT_EQ(
      Text({.ledgers = {kGolden}, .key = UsageKey::kTenant}),
      "  tenant  requests  failed  prompt tokens    hit  hit rate  output tokens       cost  "
      "without cache      saved\n"
      "  alpha          3       1          2,256  1,920    85.1 %            100  $0.000164      "
      "$0.000578  $0.000414\n"
      "  beta           1       0            128      0     0.0 %              1  $0.000020      "
      "$0.000020  $0.000000\n"
      "  total          4       1          2,384  1,920    80.5 %            101  $0.000184      "
      "$0.000598  $0.000414\n"
      "  lines that were cut off, not counted: 1\n");
}

TEST(UsageCommand, JsonIsExact) {
  const auto json =
      nlohmann::json::parse(Text({.ledgers = {kGolden}, .key = UsageKey::kDay, .json = true}));
  EXPECT_EQ(json["files"], 2);
  EXPECT_EQ(json["torn_lines"], 1);
  EXPECT_EQ(json["total"]["requests"], 4);
  EXPECT_EQ(json["total"]["miss_tokens"], 464);
  EXPECT_EQ(json["total"]["cost_pico_usd"], 184'248'000);
  EXPECT_EQ(json["total"]["cost_without_cache_pico_usd"], 598'200'000);
  EXPECT_EQ(json["total"]["saved_pico_usd"], 413'952'000);
  ASSERT_EQ(json["groups"].size(), 3u);
  EXPECT_EQ(json["groups"][2]["day"], "2026-09-12");
  EXPECT_EQ(json["groups"][2]["hit_rate"], 0.5);
}

TEST(UsageCommand, FailsOnWhatIsNotThere) {
  const Result<std::string> text = UsageText({.ledgers = {kGolden + ".missing"}});
  EXPECT_EQ(text.status().code(), StatusCode::kNotFound);
}

TEST(UsageCommand, RefusesAnUnknownKey) {
  CLI::App app;
  int exit_code = 0;
  AddUsageCommand(app, &exit_code);
  try {
    app.parse("usage ledger.jsonl --by week");
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("key is 'week'; allowed: tenant, day, endpoint"));
  }
}

}  // namespace
}  // namespace emberkv
