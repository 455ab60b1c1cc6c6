// Any bytes as a ledger line, a trace line and a price table. The first byte says which. What was
// read is written and read again as the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ledger/ledger_line.h"
#include "ledger/price_table.h"
#include "ledger/trace_line.h"
#include "ledger/trace_simulation.h"
#include "ledger/usage.h"

namespace emberkv {
namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

void ReadLedgerLine(std::string_view text) {
  const Result<LedgerLine> line = ParseLedgerLine(text);
  if (!line.ok()) return;
  const Result<LedgerLine> again = ParseLedgerLine(LedgerJson(*line));
  Require(again.ok() && *again == *line);
  UsageReport report(UsageKey::kDay);
  Require(report.Add(*line).ok());
  Require(report.groups().begin()->second == report.total());
}

void ReadTraceLine(std::string_view text) {
  const Result<TraceLine> line = ParseTraceLine(text);
  if (!line.ok()) return;
  const Result<TraceLine> again = ParseTraceLine(TraceJson(*line));
  Require(again.ok() && again->blocks == line->blocks && again->tenant == line->tenant);
  const PriceTable prices = PublishedPrices();
  TraceSimulation simulation(
      {.page_bytes = 1, .memory_bytes = 2, .store_bytes = 3, .retention_us = 1}, &prices);
  for (int i = 0; i < 2; ++i) Require(simulation.Run(*line).ok());
  const SimulationResult& result = simulation.result();
  Require(result.memory_hit_tokens + result.store_hit_tokens <= result.prompt_tokens);
  Require(result.held_peak_pages <= 3);
}

void ReadPrices(std::string_view text) {
  const Result<PriceTable> prices = ParsePriceTable(text);
  if (!prices.ok()) return;
  const Cost cost = CostOf(*prices, 0, kMaxRequestTokens, kMaxRequestTokens / 2, kMaxRequestTokens);
  Require(cost.with_cache >= 0 && cost.without_cache >= 0);
}

}  // namespace
}  // namespace emberkv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace emberkv;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      ReadLedgerLine(text);
      break;
    case 1:
      ReadTraceLine(text);
      break;
    default:
      ReadPrices(text);
  }
  return 0;
}
