#include "cli/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

RunSummary SomeRun() {
  RunSummary summary;
  summary.prompt_tokens = 1000;
  summary.output_tokens = 6;
  summary.ttft_seconds = 0.5;
  summary.session.computed_tokens = 1000;
  summary.session.pages = 8;
  summary.session.kv_bytes = 8000;
  summary.session.filled_kv_bytes = 7000;
  summary.session.prefill_tokens = 1000;
  summary.session.prefill_seconds = 0.25;
  summary.session.token_layers = 5300;
  summary.session.full_token_layers = 10000;
  summary.pool.page_bytes = 1000;
  summary.pool.capacity_pages = 100;
  summary.threads = 2;
  summary.isa = "avx2";
  return summary;
}

TEST(RunReport, AnswersAreOneJsonLineWhateverTheyHold) {
  AnswerReport answer;
  answer.index = 2;
  answer.prompt = "a \"quoted\"\nline \xff";
  answer.text = " 482 913.";
  answer.prompt_tokens = 17;
  answer.output_tokens = 6;
  answer.ttft_seconds = 0.25;
  answer.finish_reason = FinishReason::kEos;
  const std::string line = AnswerJson(answer);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["event"], "answer");
  EXPECT_EQ(json["index"], 2);
  EXPECT_EQ(json["prompt"], "a \"quoted\"\nline \xEF\xBF\xBD");
  EXPECT_EQ(json["text"], " 482 913.");
  EXPECT_EQ(json["ttft_ms"], 250);
  EXPECT_EQ(json["finish_reason"], "eos");
}

TEST(RunReport, SummaryTellsCostsAndRates) {
  const auto json = nlohmann::json::parse(SummaryJson(SomeRun()));
  EXPECT_EQ(json["event"], "summary");
  EXPECT_EQ(json["kv_bytes_per_token"], 8);
  EXPECT_EQ(json["kv_rows_bytes_per_token"], 7);
  EXPECT_EQ(json["prefill_tokens_per_s"], 4000);
  EXPECT_EQ(json["decode_tokens_per_s"], 0);
  EXPECT_EQ(json["token_layer_share"], 0.53);
  EXPECT_EQ(json["pool_bytes"], 100000);
  EXPECT_FALSE(json.contains("replay_note"));
}

TEST(RunReport, TextNamesPagesBytesAndShare) {
  const std::string text = SummaryText(SomeRun());
  EXPECT_THAT(text, HasSubstr("8 pages x 1,000 bytes, 8 per token"));
  EXPECT_THAT(text, HasSubstr("7 bytes per token, 1,000 tokens"));
  EXPECT_THAT(text, HasSubstr("53.0 % of full"));
  EXPECT_THAT(text, HasSubstr("4,000 tokens/s"));
  EXPECT_THAT(text, HasSubstr("avx2"));
}

}  // namespace
}  // namespace emberkv
