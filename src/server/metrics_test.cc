#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace emberkv {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ServerState StateWithStore() {
  ServerState state;
  state.caches.pages.pool.page_bytes = 1000;
  state.caches.pages.pool.capacity_pages = 50;
  state.caches.pages.pool.pages_in_use = 7;
  state.caches.pages.resident_bytes = 4000;
  state.caches.pages.pinned_pages = 2;
  state.caches.windows.bytes = 321;
  state.caches.store.emplace();
  state.caches.store->budget_bytes = 1 << 20;
  state.caches.store->used_bytes = 6000;
  state.caches.store->promised_bytes = 5000;
  state.caches.store->puts_refused_tenant_full = 7;
  state.admission.running = 3;
  state.admission.refused[static_cast<int>(RefusalReason::kTenantRate)] = 4;
  return state;
}

TEST(Metrics, Case_M05_EveryByteOfEveryTierIsInAGauge) {
  const std::string text = Metrics().Render(StateWithStore(), {});
  for (const char* line :
       {"emberkv_memory_bytes{part=\"pool_capacity\"} 50000\n",
        "emberkv_memory_bytes{part=\"pool_used\"} 7000\n", "emberkv_memory_bytes{part=\"resident\"} 4000\n",
        "emberkv_memory_bytes{part=\"pinned\"} 2000\n", "emberkv_memory_bytes{part=\"windows\"} 321\n",
        "emberkv_store_bytes{part=\"budget\"} 1048576\n", "emberkv_store_bytes{part=\"used\"} 6000\n",
        "emberkv_store_puts_total{outcome=\"refused_tenant_full\"} 7\n",
        "emberkv_store_bytes{part=\"promised\"} 5000\n", "emberkv_store_evicted_before_deadline_total 0\n",
        "emberkv_running_requests 3\n", "emberkv_refusals_total{reason=\"tenant_rate\"} 4\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, Case_M04_BytesOfASequenceAndOfATokenAreReportedApart) {
  ServerState state;
  state.memory.session_bytes = 2'703'360;
  state.memory.block_size = 128;
  state.caches.pages.pool.page_bytes = 113'920;
  const std::string text = Metrics().Render(state, {});
  EXPECT_THAT(text, HasSubstr("emberkv_session_bytes 2703360\n"));
  EXPECT_THAT(text, HasSubstr("emberkv_page_bytes 113920\n"));
  EXPECT_THAT(text, HasSubstr("emberkv_block_tokens 128\n"));
}

TEST(Metrics, WithoutAStoreThereAreNoNumbersOfOne) {
  EXPECT_THAT(Metrics().Render({}, {}), Not(HasSubstr("emberkv_store_bytes")));
}

TEST(Metrics, NamesAreTypedOnceAndValuesOfOneNameStandTogether) {
  Metrics metrics;
  LedgerLine line;
  line.endpoint = "/v1/completions";
  metrics.CountRequest(line, 0);
  line.tenant = "b";
  metrics.CountRequest(line, 0);
  metrics.CountReply("/health", 200);
  HistorySnapshot history;
  history.by_tenant["a"].cost_pico_usd = 1'500'000'000'000;
  history.by_tenant["b"].cost_pico_usd = 0;
  const std::string text = metrics.Render(StateWithStore(), history);
  std::map<std::string, int> types;
  for (size_t at = text.find("# TYPE "); at != std::string::npos; at = text.find("# TYPE ", at + 1)) {
    ++types[text.substr(at + 7, text.find(' ', at + 7) - at - 7)];
  }
  EXPECT_GT(types.size(), 30u);
  for (const auto& [name, count] : types) EXPECT_EQ(count, 1) << name;
  EXPECT_THAT(text, HasSubstr("emberkv_cost_usd_total{tenant=\"a\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("emberkv_http_replies_total{route=\"/health\",status=\"200\"} 1\n"));
}

TEST(Metrics, KnowsTheMemoryOfThisProcess) { EXPECT_GT(ProcessResidentBytes(), uint64_t{1} << 20); }

}  // namespace
}  // namespace emberkv
