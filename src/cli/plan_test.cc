#include "cli/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/plan_command.h"
#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

using Json = nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kReleased = std::string(EMBERKV_TEST_DATA) + "/configs/released.json";

Plan MakeOrDie(const PlanRequest& request) {
  Result<Plan> plan = MakePlan(request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : Plan();
}

PlanRequest RequestOf(const std::string& path) {
  PlanRequest request;
  request.config_path = path;
  return request;
}

TEST(Plan, TextShowsTheReleasedNumbers) {
  PlanRequest request = RequestOf(kReleased);
  request.sessions = 3;
  request.device_bytes = 64ull << 30;
  request.host_bytes = 1ull << 30;
  const std::string text = PlanText(MakeOrDie(request));
  for (const char* line : {
           "encoder 0-19 for every prompt token \\+ decoder 20-39 for the last 128",
           "3-7 +Reuse +2 +2 +2\n",
           "14 +Full +2 +14 +14 +before it\n",
           "20 +Full +1 +20 +20 +makes pool\n",
           "24 +Reindex +1 +20 +24 +in pool\n",
           "global KV per token +890 +2.5 rows of 288 \\+ 68\n",
           "main KV +720\n",
           "index keys +170\n",
           "page +113,920 ",
           "windows per sequence +2,703,360 ",
           "encoder checkpoint +1,351,680 ",
           "1,048,576 +8,192 +892.59 MiB +891.30 MiB +890.00 MiB\n",
           "3 sessions need\n",
           "device +64.00 GiB +73 +77,212,800 +2.62 GiB +fit\n",
           "host +1.00 GiB +1 +1,206,400 +2.61 GiB +do not fit\n",
           "SSD +- +- +- +2.61 GiB\n",
           "72 h of 10,000 new tokens/s = 2.31 TB",
           "total +20.205 +25.654\n",
           "ratio +1 +1.27\n",
           "20 of 40 layers for every token; 50.0 %",
           "V1 67B +389,120 +95 x 4,096\n",
           "V3.2 +48,068 +61 x 656 \\+ 61 x 132\n",
           "V4-Flash +3,514.25 +21 x 584 / 4",
           "this config +890 ",
           "437x",
           "1/3.95",
           "1/7.90",
       }) {
    EXPECT_THAT(text, ContainsRegex(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr(" \n")));
}

TEST(Plan, JsonCarriesTheSameNumbers) {
  PlanRequest request = RequestOf(kReleased);
  request.context = 4096;
  request.ssd_bytes = 1000000000000;
  const Json json = Json::parse(PlanJson(MakeOrDie(request)));
  EXPECT_EQ(json["bytes"]["per_token"], 890.0);
  EXPECT_EQ(json["bytes"]["main_kv_per_token"], 720.0);
  EXPECT_EQ(json["bytes"]["windows_per_sequence"], 2703360);
  EXPECT_EQ(json["bytes"]["encoder_checkpoint"], 1351680);
  EXPECT_EQ(json["decoder_begin"], 20);
  EXPECT_EQ(json["layers"].size(), 40u);
  EXPECT_EQ(json["layers"][31]["role"], "Reuse");
  EXPECT_EQ(json["layers"][31]["index_source_layer"], 28);
  EXPECT_FALSE(json["layers"][0].contains("kv_source_layer"));
  EXPECT_EQ(json["context"], 4096);
  EXPECT_EQ(json["tiers"][2]["session_bytes"], 32 * 113920);
  EXPECT_EQ(json["tiers"][2]["sessions"], 1000000000000 / (32 * 113920));
  EXPECT_FALSE(json["tiers"][0].contains("sessions"));
  EXPECT_EQ(json["retention"]["bytes"], 2306880000000.0);
  EXPECT_EQ(json["decode"]["ratio"], 1.0);
  EXPECT_NEAR(json["ratios"]["v1_over_this"].get<double>(), 437.2, 0.05);
}

TEST(Plan, SmallModelsShowTheirOwnContexts) {
  const Plan plan = MakeOrDie(RequestOf(std::string(EMBERKV_TEST_DATA) + "/golden/tiny-random"));
  ASSERT_EQ(plan.memory.size(), 1u);
  EXPECT_EQ(plan.memory[0].tokens, 1024);
  EXPECT_EQ(plan.decode_short.tokens, 1024);
  EXPECT_THAT(PlanText(plan), ContainsRegex("global KV per token +106 "));
}

TEST(Plan, RefusesWhatTheConfigCannotHold) {
  PlanRequest request = RequestOf(kReleased);
  request.context = 2000000;
  EXPECT_THAT(MakePlan(request).status().message(),
              HasSubstr("--context is 2000000; allowed: 1 to 1048576"));
  request = RequestOf(kReleased);
  request.sessions = 0;
  EXPECT_THAT(MakePlan(request).status().message(), HasSubstr("--sessions is 0"));
  request.sessions = INT64_MAX;
  EXPECT_THAT(MakePlan(request).status().message(), HasSubstr("2^64 bytes"));
  request = RequestOf(kReleased);
  request.tokens_per_second = -1;
  EXPECT_THAT(MakePlan(request).status().message(), HasSubstr("--tokens-per-second is -1"));
  EXPECT_THAT(MakePlan(RequestOf("absent.json")).status().message(), HasSubstr("absent.json"));
}

// Exit code of a command line; 2 for one that CLI11 refuses, as in main.
int RunCommandLine(std::vector<std::string> arguments, std::string* out) {
  CLI::App app;
  int exit_code = 0;
  AddPlanCommand(app, &exit_code);
  std::reverse(arguments.begin(), arguments.end());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
  }
  *out = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  return exit_code;
}

TEST(PlanCommand, PrintsTextOrJson) {
  std::string out;
  EXPECT_EQ(RunCommandLine({"plan", kReleased, "--context", "32K", "--ssd", "4TB"}, &out), 0);
  EXPECT_THAT(out, ContainsRegex("32,768 +256 "));
  EXPECT_THAT(out, ContainsRegex("SSD +3.64 TiB "));
  EXPECT_EQ(RunCommandLine({"plan", kReleased, "--json", "--device-mem", "1.5G"}, &out), 0);
  EXPECT_EQ(Json::parse(out)["tiers"][0]["size_bytes"], 3ll << 29);
  EXPECT_EQ(RunCommandLine({"plan", "--help"}, &out), 0);
  EXPECT_THAT(out, HasSubstr("emberkv plan config.json --context 128K"));
}

TEST(PlanCommand, TellsAFailureFromAWrongCommandLine) {
  std::string out;
  EXPECT_EQ(RunCommandLine({"plan", "absent.json"}, &out), 1);
  EXPECT_THAT(out, HasSubstr("emberkv plan: "));
  EXPECT_EQ(RunCommandLine({"plan"}, &out), 2);
  EXPECT_EQ(RunCommandLine({"plan", kReleased, "--host-mem", "lots"}, &out), 2);
  EXPECT_THAT(out, HasSubstr("--host-mem: size is 'lots'; allowed: "));
}

TEST(Quantity, ReadsSizesAsPeopleWriteThem) {
  const std::pair<const char*, uint64_t> sizes[] = {{"1", 1},
                                                    {"4096", 4096},
                                                    {"64G", 64ull << 30},
                                                    {"64GiB", 64ull << 30},
                                                    {"1.5T", 3ull << 39},
                                                    {"2gb", 2000000000},
                                                    {"4TB", 4000000000000},
                                                    {"512m", 512ull << 20}};
  for (const auto& [text, bytes] : sizes) {
    Result<uint64_t> parsed = ParseBytes(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
  for (const char* text :
       {"", "G", "-1G", "0", "1X", "1GG", "1 G", "nan", "inf", "1e9", "9999999T"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
  EXPECT_EQ(*ParseTokens("1M"), 1048576);
  EXPECT_EQ(*ParseTokens("1.5K"), 1536);
  EXPECT_FALSE(ParseTokens("0.3").ok());
}

TEST(Quantity, WritesNumbersInGroups) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567890), "1,234,567,890");
  EXPECT_EQ(GroupedDecimal(3514.25), "3,514.25");
  EXPECT_EQ(GroupedDecimal(2.5), "2.5");
  EXPECT_EQ(GroupedDecimal(0.999), "1");
  EXPECT_EQ(BinarySize(1023), "1023 B");
  EXPECT_EQ(BinarySize(1536), "1.50 KiB");
  EXPECT_EQ(BinarySize(uint64_t{1} << 60), "1048576.00 TiB");
}

TEST(TextTable, AlignsColumnsAndTrimsLines) {
  TextTable table("lr");
  table.AddRow({"a", "1"});
  table.AddRow({"bbb", "22"});
  table.AddRow({"c"});
  EXPECT_EQ(table.ToString(), "  a     1\n  bbb  22\n  c\n");
}

}  // namespace
}  // namespace emberkv
