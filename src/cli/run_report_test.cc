#include "cli/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace emberkv {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(RunReport, TellsWhichPathTheExpertsTook) {
  RunSummary summary = SomeRun();
  summary.experts.total_bytes = summary.experts.kept_bytes = uint64_t{8} << 20;
  EXPECT_THAT(SummaryText(summary), HasSubstr("experts: packed, 8.00 MiB of 8.00 MiB kept"));
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["experts"]["path"], "packed");
  summary.experts.is_streamed = true;
  summary.experts.kept_bytes = uint64_t{2} << 20;
  summary.experts.uses = 1000;
  summary.experts.reads = 900;
  EXPECT_THAT(SummaryText(summary),
              HasSubstr("experts: streamed, 2.00 MiB of 8.00 MiB kept; 900 of 1,000 uses were read"));
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["experts"]["path"], "streamed");
}

RunSummary AWarmRun() {
  RunSummary summary = SomeRun();
  summary.first_prompt_tokens = 1000;
  ReuseStats& reuse = summary.session.reuse;
  reuse.hit_tokens = 896;
  reuse.replayed_tokens = 128;
  reuse.resident_blocks = 2;
  reuse.store_blocks = 5;
  reuse.bytes_read = 5000;
  reuse.restore_seconds = 0.002;
  reuse.replayed_at = 896;
  reuse.miss_reason = "expired";
  summary.caches.store.emplace();
  summary.caches.store->pages = 9;
  WriteBehindStats& writes = summary.caches.pages.writes;
  writes.outcomes[static_cast<size_t>(PutOutcome::kStored)] = 3;
  writes.outcomes[static_cast<size_t>(PutOutcome::kRefusedFull)] = 4;
  writes.dropped = 6;
  return summary;
}

TEST(RunReport, AWarmRunTellsWhatItReusedAndStored) {
  const auto json = nlohmann::json::parse(SummaryJson(AWarmRun()));
  const auto& reuse = json["reuse"];
  EXPECT_EQ(reuse["hit_tokens"], 896);
  EXPECT_EQ(reuse["replayed_tokens"], 128);
  EXPECT_EQ(reuse["computed_tokens"], 104);
  EXPECT_EQ(reuse["blocks"]["memory"], 2);
  EXPECT_EQ(reuse["blocks"]["store"], 5);
  EXPECT_EQ(reuse["bytes_read"], 5000);
  EXPECT_EQ(reuse["restore_ms"], 2);
  EXPECT_EQ(reuse["provenance"], "replayed@896");
  EXPECT_EQ(reuse["miss_reason"], "expired");
  EXPECT_EQ(json["store"]["stored"], 3);
  EXPECT_EQ(json["store"]["refused_full"], 4);
  EXPECT_EQ(json["store"]["dropped"], 6);
  const std::string text = SummaryText(AWarmRun());
  EXPECT_THAT(text, HasSubstr("2 blocks from memory, 5 from the store"));
  EXPECT_THAT(text, HasSubstr("first missing block: expired"));
  EXPECT_THAT(text, HasSubstr("0 there already, 4 refused, 0 failed, 6 dropped"));
}

TEST(RunReport, WithoutAStoreNothingIsSaidOfIt) {
  EXPECT_FALSE(nlohmann::json::parse(SummaryJson(SomeRun())).contains("store"));
  EXPECT_THAT(SummaryText(SomeRun()), Not(HasSubstr("stored")));
}

}  // namespace
}  // namespace emberkv
