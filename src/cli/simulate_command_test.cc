#include "cli/simulate_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

const std::string kData = EMBERKV_TEST_DATA "/ledger/";

SimulateOptions GoldenOptions() {
  SimulateOptions options;
  options.trace = kData + "trace.jsonl";
  options.store_bytes = {3000, 1'000'000};
  options.retention = std::chrono::seconds(100);
  options.page_bytes = 1000;
  return options;
}

std::string Text(const SimulateOptions& options) {
  const Result<std::string> text = SimulateText(options);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? *text : "";
}

TEST(SimulateCommand, ShowsARowForEachSizeOfTheStore) {
  EXPECT_EQ(
      Text(GoldenOptions()),
      "  requests           6  in 2 min 10 s\n"
      "  prompt tokens  1,686\n"
      "  output tokens    100\n"
      "  page           1,000  bytes, of 128 tokens\n"
      "  memory          none\n"
      "  retention             1 min 40 s\n"
      "\n"
      "       store  hit rate  memory   store  refused pages  evicted   written  peak held       "
      "cost  without cache      saved\n"
      "    2.93 KiB    22.8 %   0.0 %  22.8 %              4        3  5.86 KiB   2.93 KiB  "
      "$0.000256      $0.000313  $0.000056\n"
      "  976.56 KiB    53.1 %   0.0 %  53.1 %              0        0  5.86 KiB   5.86 KiB  "
      "$0.000181      $0.000313  $0.000132\n");
}

TEST(SimulateCommand, JsonIsExact) {
  SimulateOptions options = GoldenOptions();
  options.store_bytes = {3000};
  options.memory_bytes = 3000;
  options.json = true;
  const auto json = nlohmann::json::parse(Text(options));
  EXPECT_EQ(json["requests"], 6);
  EXPECT_EQ(json["span_s"], 130.0);
  EXPECT_EQ(json["retention_s"], 100.0);
  EXPECT_EQ(json["torn_lines"], 0);
  ASSERT_EQ(json["runs"].size(), 1u);
  const auto& run = json["runs"][0];
  EXPECT_EQ(run["memory_hit_tokens"], 512);
  EXPECT_EQ(run["store_hit_tokens"], 0);
  EXPECT_EQ(run["miss_tokens"], 1174);
  EXPECT_EQ(run["refused_pages"], 3);
  EXPECT_EQ(run["evicted_pages"], 3);
  EXPECT_EQ(run["written_bytes"], 6000);
  EXPECT_EQ(run["held_peak_bytes"], 3000);
  EXPECT_EQ(run["cost_pico_usd"], 237'636'000);
  EXPECT_EQ(run["saved_pico_usd"], 75'264'000);
}

TEST(SimulateCommand, AModelSaysHowLargeAPageOfTheTracesBlocksIs) {
  SimulateOptions options = GoldenOptions();
  options.page_bytes = 0;
  options.model = EMBERKV_TEST_DATA "/configs/released.json";
  options.json = true;
  EXPECT_EQ(nlohmann::json::parse(Text(options))["page_bytes"], 128 * 890);
  options.trace = kData + "mooncake.jsonl";
  EXPECT_EQ(nlohmann::json::parse(Text(options))["page_bytes"], 512 * 890);
}

TEST(SimulateCommand, TakesOtherPrices) {
  SimulateOptions options = GoldenOptions();
  options.store_bytes = {1};
  options.prices = kData + "prices.json";
  options.json = true;
  // 1686 x 0.14 + 100 x 0.28 micro-dollars.
  EXPECT_EQ(nlohmann::json::parse(Text(options))["runs"][0]["cost_pico_usd"], 264'040'000);
}

TEST(SimulateCommand, SaysWhatIsMissing) {
  SimulateOptions options = GoldenOptions();
  options.page_bytes = 0;
  EXPECT_THAT(SimulateText(options).status().message(), HasSubstr("--model or --page-bytes"));
  options = GoldenOptions();
  options.trace = "/dev/null";
  EXPECT_EQ(SimulateText(options).status().message(),
            "/dev/null has no requests; allowed: a trace");
  options.trace = kData + "ledger.jsonl";
  EXPECT_THAT(SimulateText(options).status().message(), HasSubstr("ledger.jsonl:1: time is"));
}

TEST(SimulateCommand, ReadsItsCommandLine) {
  CLI::App app;
  int exit_code = 0;
  AddSimulateCommand(app, &exit_code);
  ::testing::internal::CaptureStdout();
  app.parse(
      "simulate --trace " + kData +
      "trace.jsonl --store-size 3KB --store-size 1MB --retention 100s --page-bytes 1KB --json");
  const auto json = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(exit_code, 0);
  EXPECT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][0]["refused_pages"], 4);
  try {
    app.parse("simulate --trace t --store-size 3X --page-bytes 1KB");
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("size is '3X'"));
  }
}

}  // namespace
}  // namespace emberkv
