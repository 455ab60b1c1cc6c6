// The page cache under many threads; meant for a build with the thread sanitizer as well.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <random>
#include <thread>

#include "cache_fixture.h"

namespace emberkv {
namespace {

void RunThreads(int count, const std::function<void(int)>& body) {
  std::latch start(count);
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      body(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A request as the engine makes it. Returns how many blocks it computed; -1 when it got wrong
// bytes.
int RunRequest(PageCache* cache, const Prompt& prompt) {
  while (true) {
    PrefixHit hit = cache->Lookup(prompt.chain(), {.timeout = kForever});
    if (!HoldsPagesOf(hit, prompt)) return -1;
    const size_t had = hit.num_blocks();
    if (had == prompt.chain().size()) return 0;
    const ClaimResult claim = cache->Claim(prompt.chain().subspan(had), kForever);
    if (claim.outcome == ClaimOutcome::kLookAgain) continue;
    return static_cast<int>(SealBlocks(cache, prompt, had, prompt.chain().size()).size());
  }
}

TEST(PageCacheThreads, Case_R05_ConcurrentRequestsForAColdPrefixComputeItOnce) {
  FakeClock clock;
  MemoryStore store({.budget_bytes = 1 << 24}, &clock);
  PageCache cache(MakePool(256), &store);
  const Prompt prompt(1, 20);
  std::atomic<int> computed = 0;
  std::atomic<int> wrong = 0;
  RunThreads(100, [&](int) {
    const int blocks = RunRequest(&cache, prompt);
    (blocks < 0 ? wrong : computed) += std::abs(blocks);
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(computed, 20);
  EXPECT_EQ(cache.stats().seals, 20u);
  EXPECT_EQ(cache.stats().shared_seals, 0u);
  ASSERT_TRUE(cache.Flush(kForever));
  EXPECT_EQ(cache.stats().pinned_pages, 0u);
}

TEST(PageCacheThreads, Case_R05_ConcurrentRequestsForAStoredPrefixFetchItOnce) {
  FakeClock clock;
  GatedStore store({.budget_bytes = 1 << 24}, &clock);
  const Prompt prompt(1, 20);
  {
    PageCache earlier(MakePool(32), &store);
    SealBlocks(&earlier, prompt, 0, 20);
    ASSERT_TRUE(earlier.Flush(kForever));
  }
  PageCache cache(MakePool(32), &store);
  store.CloseGets();
  std::thread opener([&] {
    store.AwaitGet();
    store.OpenGets();
  });
  std::atomic<int> whole_hits = 0;
  RunThreads(100, [&](int) {
    const PrefixHit hit = cache.Lookup(prompt.chain(), {.timeout = kForever});
    if (hit.num_blocks() == 20 && HoldsPagesOf(hit, prompt)) ++whole_hits;
  });
  opener.join();
  EXPECT_EQ(whole_hits, 100);
  EXPECT_EQ(store.pages_asked(), 20u);
  EXPECT_EQ(cache.stats().bytes_read, 20 * kPageBytes);
  EXPECT_EQ(cache.stats().pool.pages_in_use, 20u);
}

TEST(PageCacheThreads, ARequestDoesNotWaitForALoadBeyondItsDeadline) {
  FakeClock clock;
  GatedStore store({.budget_bytes = 1 << 24}, &clock);
  const Prompt prompt(1, 2);
  PageCache cache(MakePool(2), &store);
  SealBlocks(&cache, prompt, 0, 2);
  ASSERT_TRUE(cache.Flush(kForever));
  {
    const PageHandle a = std::move(cache.pool()->Acquire()).value();
    const PageHandle b = std::move(cache.pool()->Acquire()).value();
  }
  store.CloseGets();
  size_t loaded = 0;
  std::thread loader(
      [&] { loaded = cache.Lookup(prompt.chain(), {.timeout = kForever}).num_blocks(); });
  store.AwaitGet();
  const uint64_t probes = store.probes();
  const PrefixHit hit = cache.Lookup(prompt.chain(), {.timeout = std::chrono::milliseconds(1)});
  EXPECT_EQ(hit.num_blocks(), 0u);
  EXPECT_EQ(hit.miss_reason, MissReason::kTimeout);
  EXPECT_EQ(store.probes(), probes) << "it waited, and asked for nothing";
  store.OpenGets();
  loader.join();
  EXPECT_EQ(loaded, 2u);
}

TEST(PageCacheThreads, Case_R04_GivingUpAtAnyPointLeaksNothing) {
  FakeClock clock;
  GatedStore store({.budget_bytes = 1 << 24}, &clock);
  PageCache cache(MakePool(64), &store);
  const Prompt prompt(1, 8);
  RunThreads(8, [&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    for (int i = 0; i < 100; ++i) {
      const std::atomic<bool> cancel = random() % 2 == 0;
      const PrefixHit hit = cache.Lookup(prompt.chain());
      const auto rest = prompt.chain().subspan(hit.num_blocks());
      if (rest.empty() || random() % 3 == 0) continue;
      const ClaimResult claim = cache.Claim(rest, kForever, &cancel);
      if (claim.outcome != ClaimOutcome::kCompute || random() % 3 == 0) continue;
      SealBlocks(&cache, prompt, hit.num_blocks(), hit.num_blocks() + random() % 2);
    }
  });
  ASSERT_TRUE(cache.Flush(kForever));
  const PageCacheStats stats = cache.stats();
  EXPECT_EQ(stats.pinned_pages, 0u);
  EXPECT_EQ(stats.pool.pages_in_use, stats.resident_pages);
  EXPECT_EQ(stats.unequal_seals, 0u);
  // Nobody's claim is left: the whole prompt can be claimed, or is there.
  const PrefixHit hit = cache.Lookup(prompt.chain());
  EXPECT_EQ(
      cache.Claim(prompt.chain().subspan(hit.num_blocks()), std::chrono::milliseconds(0)).outcome,
      ClaimOutcome::kCompute);
}

TEST(PageCacheThreads, AFullPoolUnderManyRequestsNeverServesAnothersBytes) {
  FakeClock clock;
  GatedStore store({.budget_bytes = 1 << 24}, &clock);
  PageCache cache(MakePool(24), &store, {.max_queued_pages = 8, .batch_pages = 3});
  std::atomic<int> wrong = 0;
  RunThreads(6, [&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    for (int i = 0; i < 150; ++i) {
      const Prompt stem(static_cast<int32_t>(random() % 4), 4);
      const Prompt prompt(stem, 1 + random() % 3, static_cast<int32_t>(10 + random() % 4),
                          random() % 5);
      if (RunRequest(&cache, prompt) < 0) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  ASSERT_TRUE(cache.Flush(kForever));
  const PageCacheStats stats = cache.stats();
  EXPECT_GT(stats.evictions, 0u);
  EXPECT_GT(stats.store_hits, 0u);
  EXPECT_EQ(stats.pinned_pages, 0u);
  EXPECT_EQ(stats.pool.pages_in_use, stats.resident_pages);
}

}  // namespace
}  // namespace emberkv
