#include "ledger/trace_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "layout/identity.h"
#include "store/retention_book.h"

namespace emberkv {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr uint64_t kPageBytes = 1000;

SimulationResult RunGolden(const std::string& name, const SimulatedMachine& machine) {
  const PriceTable prices = PublishedPrices();
  TraceSimulation simulation(machine, &prices);
  Result<TraceReader> trace = TraceReader::Open(EMBERKV_TEST_DATA "/ledger/" + name);
  EXPECT_TRUE(trace.ok()) << trace.status().ToString();
  TraceLine line;
  while (trace.ok() && *trace->Next(&line)) EXPECT_TRUE(simulation.Run(line).ok());
  return simulation.result();
}

// The six requests: a b | a b c | the other tenant's a | d e | a b | a b c, of 300, 300, 129, 257,
// 300 and 400 tokens, at 0, 10, 20, 110, 120 and 130 s; retention is 100 s.
constexpr SimulatedMachine kThreePages = {
    .page_bytes = kPageBytes, .store_bytes = 3 * kPageBytes + 999, .retention_us = 100 * kSecond};

TEST(TraceSimulation, RefusesWhilePromisedAndEvictsWhatExpired) {
  // Hits: a b of the second request, a of the last. Refused: the other tenant's a, then b, b and c,
  // while d and e are promised. Expired and evicted at 110 s and 120 s: a, b, c.
  EXPECT_EQ(RunGolden("trace.jsonl", kThreePages),
            (SimulationResult{.requests = 6,
                              .prompt_tokens = 1686,
                              .memory_hit_tokens = 0,
                              .store_hit_tokens = 384,
                              .completion_tokens = 100,
                              .written_pages = 6,
                              .refused_pages = 4,
                              .evicted_pages = 3,
                              .held_peak_pages = 3,
                              .cost = {256'452'000, 312'900'000}}));
}

TEST(TraceSimulation, MemoryServesWhatTheStoreRefused) {
  SimulatedMachine machine = kThreePages;
  machine.memory_bytes = 3 * kPageBytes;
  const SimulationResult result = RunGolden("trace.jsonl", machine);
  EXPECT_EQ(result.memory_hit_tokens, 512);  // a b, then a and the refused b
  EXPECT_EQ(result.store_hit_tokens, 0);
  EXPECT_EQ(result.refused_pages, 3u);  // b is not offered again
  EXPECT_EQ(result.written_pages, 6u);
  EXPECT_EQ(result.cost, (Cost{237'636'000, 312'900'000}));
}

TEST(TraceSimulation, AnAmpleStoreHitsAllThatWasSeen) {
  SimulatedMachine machine = kThreePages;
  machine.store_bytes = 1'000'000;
  EXPECT_EQ(RunGolden("trace.jsonl", machine),
            (SimulationResult{.requests = 6,
                              .prompt_tokens = 1686,
                              .memory_hit_tokens = 0,
                              .store_hit_tokens = 896,
                              .completion_tokens = 100,
                              .written_pages = 6,
                              .refused_pages = 0,
                              .evicted_pages = 0,
                              .held_peak_pages = 6,
                              .cost = {181'188'000, 312'900'000}}));
}

TEST(TraceSimulation, AStoreWithoutRoomForAPageRefusesAll) {
  SimulatedMachine machine = kThreePages;
  machine.store_bytes = kPageBytes - 1;
  const SimulationResult result = RunGolden("trace.jsonl", machine);
  EXPECT_EQ(result.store_hit_tokens, 0);
  EXPECT_EQ(result.refused_pages, 13u);
  EXPECT_EQ(result.cost.with_cache, result.cost.without_cache);
  EXPECT_EQ(result.saved(), 0);
}

TEST(TraceSimulation, TakesMooncakesTrace) {
  SimulatedMachine machine = kThreePages;
  machine.store_bytes = 10 * kPageBytes;
  const SimulationResult result = RunGolden("mooncake.jsonl", machine);
  EXPECT_EQ(result.prompt_tokens, 2700);
  EXPECT_EQ(result.store_hit_tokens, 1024);
  EXPECT_EQ(result.written_pages, 3u);
}

TEST(TraceSimulation, Case_B01_AHitLeavesTheLastToken) {
  const PriceTable prices = PublishedPrices();
  TraceSimulation simulation(kThreePages, &prices);
  const TraceLine request = {.prompt_tokens = 256, .block_size = 128, .blocks = {1, 2}};
  ASSERT_TRUE(simulation.Run(request).ok());
  ASSERT_TRUE(simulation.Run(request).ok());
  EXPECT_EQ(simulation.result().store_hit_tokens, 128);
  EXPECT_EQ(simulation.result().written_pages, 2u);
}

TEST(TraceSimulation, MemoryEvictsWhatWasUsedLongestAgo) {
  const PriceTable prices = PublishedPrices();
  TraceSimulation simulation({.page_bytes = kPageBytes,
                              .memory_bytes = 2 * kPageBytes,
                              .store_bytes = 1,
                              .retention_us = kSecond},
                             &prices);
  for (const uint64_t page : {1, 2, 1, 3, 1, 2}) {
    ASSERT_TRUE(simulation.Run({.prompt_tokens = 129, .block_size = 128, .blocks = {page}}).ok());
  }
  // 3 pushes 2 out, which was used before 1: both later requests for 1 hit, the one for 2 does not.
  EXPECT_EQ(simulation.result().memory_hit_tokens, 256);
}

TEST(TraceSimulation, AnEarlierRequestCountsAsAtTheSameTime) {
  const PriceTable prices = PublishedPrices();
  SimulatedMachine machine = kThreePages;
  machine.store_bytes = kPageBytes;
  TraceSimulation simulation(machine, &prices);
  const auto run = [&](int64_t time_us, uint64_t page) {
    ASSERT_TRUE(simulation.Run({.time_us = time_us, .prompt_tokens = 129, .blocks = {page}}).ok());
  };
  run(50 * kSecond, 1);
  run(0, 1);  // a use at 50 s
  run(149 * kSecond, 2);
  EXPECT_EQ(simulation.result().refused_pages, 1u);
  run(150 * kSecond, 2);
  EXPECT_EQ(simulation.result().evicted_pages, 1u);
}

// The store's own bookkeeping as the oracle. Chains ascend, as the book breaks ties by key.
class BookSimulation {
 public:
  BookSimulation(uint64_t store_bytes, int64_t retention_us) : book_(store_bytes, retention_us) {}

  void Run(const TraceLine& request) {
    const auto end =
        std::min(request.blocks.size(), static_cast<size_t>((request.prompt_tokens - 1) / 128));
    size_t hits = 0;
    while (hits < end && held_.contains(request.blocks[hits])) {
      book_.Extend(Key(request.blocks[hits++]), request.time_us);
      result.store_hit_tokens += 128;
    }
    for (size_t i = hits; i < request.blocks.size(); ++i) Offer(request.blocks[i], request.time_us);
    result.held_peak_pages = std::max<uint64_t>(result.held_peak_pages, book_.pages());
  }

  SimulationResult result;

 private:
  static BlockHash Key(uint64_t page) {
    BlockHash key;
    for (size_t i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(page >> (56 - 8 * i));
    return key;
  }

  void Offer(uint64_t page, int64_t now_us) {
    if (held_.contains(page)) return book_.Extend(Key(page), now_us);
    const RetentionBook::Admission admission = book_.Admit(Key(page), kPageBytes, now_us);
    for (const RetentionBook::Retired& victim : admission.victims) {
      uint64_t gone = 0;
      for (size_t i = 0; i < 8; ++i) gone = gone << 8 | victim.key.bytes[i];
      held_.erase(gone);
      ++result.evicted_pages;
    }
    const bool is_admitted = admission.verdict == RetentionBook::Verdict::kAdmitted;
    if (is_admitted) held_.insert(page);
    ++(is_admitted ? result.written_pages : result.refused_pages);
  }

  RetentionBook book_;
  std::set<uint64_t> held_;
};

TEST(TraceSimulation, AdmitsAsTheStoreDoes) {
  const PriceTable prices = PublishedPrices();
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const uint64_t store_bytes = kPageBytes * (1 + random() % 40);
    const auto retention_us = static_cast<int64_t>(1 + random() % 400);
    TraceSimulation simulation(
        {.page_bytes = kPageBytes, .store_bytes = store_bytes, .retention_us = retention_us},
        &prices);
    BookSimulation book(store_bytes, retention_us);
    int64_t now_us = 0;
    for (int i = 0; i < 2000; ++i) {
      now_us += static_cast<int64_t>(1 + random() % 20);
      std::set<uint64_t> chain;
      for (uint32_t blocks = random() % 8; blocks > 0; --blocks) chain.insert(random() % 60);
      const TraceLine request = {
          .time_us = now_us,
          .prompt_tokens = static_cast<int64_t>(chain.size() * 128 + 1 + random() % 100),
          .blocks = {chain.begin(), chain.end()}};
      ASSERT_TRUE(simulation.Run(request).ok());
      book.Run(request);
    }
    const SimulationResult& result = simulation.result();
    EXPECT_EQ(result.store_hit_tokens, book.result.store_hit_tokens) << seed;
    EXPECT_EQ(result.written_pages, book.result.written_pages) << seed;
    EXPECT_EQ(result.refused_pages, book.result.refused_pages) << seed;
    EXPECT_EQ(result.evicted_pages, book.result.evicted_pages) << seed;
    EXPECT_EQ(result.held_peak_pages, book.result.held_peak_pages) << seed;
    EXPECT_GT(result.store_hit_tokens, 0) << seed;
  }
}

}  // namespace
}  // namespace emberkv
