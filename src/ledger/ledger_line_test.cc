#include "ledger/ledger_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ledger/price_table.h"
#include "ledger/utc_time.h"

namespace emberkv {
namespace {

// Every field has a value of its own.
LedgerLine FullLine() {
  return {.time_us = *ParseUtcText("2026-09-10T01:02:03.000004Z"),
          .request_id = "r-1",
          .tenant = "alpha",
          .endpoint = "/v1/completions",
          .model = "ember-tiny",
          .status = 499,
          .finish_reason = "length",
          .prompt_tokens = 30,
          .hit_tokens = 10,
          .replayed_tokens = 11,
          .miss_tokens = 20,
          .completion_tokens = 12,
          .resident_blocks = 13,
          .store_blocks = 14,
          .bytes_read = 15,
          .queue_us = 16,
          .restore_us = 17,
          .ttft_us = 18,
          .total_us = 19,
          .replayed_at = 128,
          .miss_reason = "expired",
          .cost_pico_usd = 21,
          .cost_without_cache_pico_usd = 22};
}

constexpr const char* kFullJson =
    R"({"time":"2026-09-10T01:02:03.000004Z","request_id":"r-1","tenant":"alpha",)"
    R"("endpoint":"/v1/completions","model":"ember-tiny","status":499,"finish_reason":"length",)"
    R"("prompt_tokens":30,"hit_tokens":10,"replayed_tokens":11,"miss_tokens":20,)"
    R"("completion_tokens":12,"resident_blocks":13,"store_blocks":14,"bytes_read":15,)"
    R"("queue_us":16,"restore_us":17,"ttft_us":18,"total_us":19,"replayed_at":128,)"
    R"("miss_reason":"expired","cost_pico_usd":21,"cost_without_cache_pico_usd":22})";

TEST(LedgerLine, HasOneFormInOneOrder) {
  EXPECT_EQ(LedgerJson(FullLine()), kFullJson);
  const Result<LedgerLine> read = ParseLedgerLine(kFullJson);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, FullLine());
}

TEST(LedgerLine, StaysOneLineWhateverClientsCallThemselves) {
  LedgerLine line = FullLine();
  line.tenant = "a\nb\"c\xff";
  const std::string json = LedgerJson(line);
  EXPECT_EQ(json.find('\n'), json.npos);
  const Result<LedgerLine> read = ParseLedgerLine(json);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->tenant, "a\nb\"c\xef\xbf\xbd");
}

TEST(LedgerLine, IgnoresWhatItDoesNotKnowAndNeedsWhatIsBilled) {
  nlohmann::json json = nlohmann::json::parse(kFullJson);
  json["new_in_a_later_version"] = {1, 2};
  EXPECT_EQ(*ParseLedgerLine(json.dump()), FullLine());
  for (const char* name : {"time", "prompt_tokens", "hit_tokens", "miss_tokens",
                           "completion_tokens", "cost_pico_usd", "cost_without_cache_pico_usd"}) {
    nlohmann::json without = json;
    without.erase(name);
    EXPECT_EQ(ParseLedgerLine(without.dump()).status().message().rfind(name, 0), 0u) << name;
  }
  json.erase("replayed_tokens");
  json.erase("tenant");
  const Result<LedgerLine> older = ParseLedgerLine(json.dump());
  ASSERT_TRUE(older.ok()) << older.status().ToString();
  EXPECT_EQ(older->replayed_tokens, 0);
  EXPECT_EQ(older->tenant, "");
}

std::string RefusalWith(const char* name, const nlohmann::json& value) {
  nlohmann::json json = nlohmann::json::parse(kFullJson);
  json[name] = value;
  const Status status = ParseLedgerLine(json.dump()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
  return status.message();
}

TEST(LedgerLine, RefusesWrongTypesAndRanges) {
  EXPECT_EQ(RefusalWith("tenant", 5), "tenant is 5; allowed: a text");
  EXPECT_EQ(RefusalWith("time", 5), "time is 5; allowed: a text");
  EXPECT_EQ(RefusalWith("hit_tokens", "10"),
            "hit_tokens is \"10\"; allowed: an integer from 0 to 1000000000");
  EXPECT_EQ(RefusalWith("hit_tokens", -1),
            "hit_tokens is -1; allowed: an integer from 0 to 1000000000");
  EXPECT_EQ(RefusalWith("hit_tokens", 10.0),
            "hit_tokens is 10.0; allowed: an integer from 0 to 1000000000");
  EXPECT_EQ(RefusalWith("cost_pico_usd", kMaxRequestCost + 1),
            "cost_pico_usd is 2000000000000000001; allowed: an integer from 0 to "
            "2000000000000000000");
}

TEST(LedgerLine, Case_M01_HitAndMissAreThePrompt) {
  EXPECT_EQ(RefusalWith("miss_tokens", 21),
            "hit_tokens 10 + miss_tokens 21 is not prompt_tokens 30; allowed: counts that add up");
}

TEST(LedgerLine, EveryPrefixOfALineIsKnownAsTorn) {
  const std::string json = kFullJson;
  for (size_t length = 0; length < json.size(); ++length) {
    EXPECT_EQ(ParseLedgerLine(json.substr(0, length)).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(ParseLedgerLine("[]").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace emberkv
