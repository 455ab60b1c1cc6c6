#include "server/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <filesystem>
#include <sstream>

#include "base/fake_clock.h"
#include "ledger/ledger_files.h"
#include "ledger/price_table.h"

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RequestLogTest : public ::testing::Test {
 protected:
  RequestLogTest()
      : path_(std::filesystem::path(::testing::TempDir()) / "emberkv_request_log_test.jsonl"),
        history_(&clock_, 128),
        logger_("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(written_)) {
    std::filesystem::remove(path_);
    clock_.SetWall(1'789'000'000'000'000);
    auto ledger = LedgerWriter::Open(path_);
    EXPECT_TRUE(ledger.ok());
    ledger_ = std::move(ledger).value();
    log_ = std::make_unique<RequestLog>(
        RequestLogSinks{ledger_.get(), &metrics_, &history_, &logger_, &clock_}, "ember");
  }
  ~RequestLogTest() override { std::filesystem::remove(path_); }

  std::shared_ptr<OpenRequest> Begin(const std::string& id, const std::string& tenant) {
    return log_->Begin(id, tenant, "/v1/chat/completions", std::chrono::steady_clock::now());
  }

  // What the metrics show for a name with its labels; -1 when there is none.
  double Metric(const std::string& name) const {
    const std::string text = metrics_.Render({}, history_.snapshot());
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  const std::filesystem::path path_;
  FakeClock clock_;
  Metrics metrics_;
  ServingHistory history_;
  std::ostringstream written_;
  spdlog::logger logger_;
  std::unique_ptr<LedgerWriter> ledger_;
  std::unique_ptr<RequestLog> log_;
};

GenerationOutcome OutcomeOf(int64_t i) {
  GenerationOutcome outcome;
  outcome.http_status = i % 7 == 6 ? 499 : 200;
  outcome.finish_reason = "stop";
  outcome.prompt_tokens = 1000 + i * 131;
  outcome.hit_tokens = 128 * (i % 8);
  outcome.replayed_tokens = i % 3;
  outcome.completion_tokens = i % 11;
  outcome.resident_blocks = i % 8;
  outcome.bytes_read = static_cast<uint64_t>(i) * 1'234'567;
  outcome.ttft_seconds = 0.1;
  outcome.decode_seconds = 0.5;
  outcome.miss_reason = i % 2 == 0 ? "never seen" : "";
  outcome.arrived_us = 1'789'000'000'000'000 + i;
  outcome.cost = CostOf(PublishedPrices(), outcome.arrived_us, outcome.prompt_tokens, outcome.hit_tokens,
                        outcome.completion_tokens);
  return outcome;
}

TEST_F(RequestLogTest, Case_M03_LedgerLinesAddUpToTheMetrics) {
  for (int64_t i = 0; i < 200; ++i) {
    const auto request = Begin("req-" + std::to_string(i), i % 4 == 0 ? "b" : "a");
    log_->End(*request, OutcomeOf(i), 0.01);
  }
  std::map<std::string, TokenTotals> sums;
  std::map<std::string, int64_t> bytes;
  int64_t gone = 0;
  const auto reading = ReadLedgers({path_}, [&](const LedgerLine& line) {
    sums[line.tenant].Add(line, 128);
    bytes[line.tenant] += line.bytes_read;
    gone += line.status == 499 && line.tenant == "a";
    return Status::Ok();
  });
  ASSERT_TRUE(reading.ok()) << reading.status().message();
  EXPECT_EQ(reading->lines, 200u);
  const auto tokens = [this](const std::string& kind, const std::string& tenant) {
    return Metric("emberkv_tokens_total{kind=\"" + kind + "\",tenant=\"" + tenant + "\"}");
  };
  for (const std::string tenant : {"a", "b"}) {
    const TokenTotals& sum = sums[tenant];
    EXPECT_EQ(tokens("prompt", tenant), sum.prompt_tokens);
    EXPECT_EQ(tokens("hit", tenant), sum.hit_tokens());
    EXPECT_EQ(tokens("replayed", tenant), sum.replayed_tokens);
    EXPECT_EQ(tokens("miss", tenant), sum.miss_tokens);
    EXPECT_EQ(tokens("completion", tenant), sum.completion_tokens);
    EXPECT_EQ(sum.hit_tokens() + sum.miss_tokens, sum.prompt_tokens);
    EXPECT_EQ(Metric("emberkv_request_store_read_bytes_total{tenant=\"" + tenant + "\"}"), bytes[tenant]);
    const HistorySnapshot history = history_.snapshot();
    EXPECT_EQ(history.by_tenant.at(tenant).cost_pico_usd, sum.cost_pico_usd);
    EXPECT_EQ(history.by_tenant.at(tenant).cost_without_cache_pico_usd, sum.cost_without_cache_pico_usd);
  }
  EXPECT_GT(gone, 0);
  EXPECT_EQ(Metric("emberkv_requests_total{endpoint=\"/v1/chat/completions\",status=\"499\",tenant=\"a\"}"),
            gone);
  EXPECT_EQ(Metric("emberkv_misses_total{reason=\"never seen\"}"), 100);
}

TEST_F(RequestLogTest, KnowsWhatIsOpenInOrderOfArrival) {
  const auto first = Begin("req-1", "a");
  const auto second = Begin("req-2", "b");
  const auto ids = [this] {
    std::vector<std::string> all;
    for (const auto& request : log_->open()) all.push_back(request->id);
    return all;
  };
  EXPECT_THAT(ids(), ElementsAre("req-1", "req-2"));
  log_->End(*first, OutcomeOf(1), 0);
  EXPECT_THAT(ids(), ElementsAre("req-2"));
  log_->End(*second, OutcomeOf(2), 0);
  EXPECT_THAT(ids(), IsEmpty());
}

TEST_F(RequestLogTest, OnlyFailuresOfTheServerAreLoggedWithTheirMessage) {
  GenerationOutcome outcome;
  outcome.http_status = 400;
  outcome.error = "temperature is \"my secret text\"";
  log_->End(*Begin("req-1", "a"), outcome, 0);
  logger_.flush();
  EXPECT_THAT(written_.str(), HasSubstr("req-1 tenant=a /v1/chat/completions 400"));
  EXPECT_THAT(written_.str(), Not(HasSubstr("secret")));
  outcome.http_status = 500;
  outcome.error = "the disk is broken";
  log_->End(*Begin("req-2", "a"), outcome, 0);
  logger_.flush();
  EXPECT_THAT(written_.str(), HasSubstr("the disk is broken"));
}

TEST_F(RequestLogTest, ALineHoldsWhatTheOutcomeSays) {
  const auto request = Begin("req-9", "a");
  GenerationOutcome outcome = OutcomeOf(5);
  outcome.total_seconds = 1.25;
  outcome.replayed_at = 640;
  const LedgerLine line = LineOf(*request, "ember", outcome, 0.002);
  EXPECT_EQ(line.request_id, "req-9");
  EXPECT_EQ(line.model, "ember");
  EXPECT_EQ(line.time_us, outcome.arrived_us);
  EXPECT_EQ(line.queue_us, 2000);
  EXPECT_EQ(line.total_us, 1'250'000);
  EXPECT_EQ(line.replayed_at, 640);
  EXPECT_EQ(line.cost_pico_usd, outcome.cost.with_cache);
  // One that was refused tells no time itself.
  EXPECT_EQ(LineOf(*request, "ember", {}, 0).time_us, request->arrived_us);
  EXPECT_DOUBLE_EQ(TpotSeconds(outcome), 0.5 / 4);
}

}  // namespace
}  // namespace emberkv
