#include "cache/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<PagePool> MakePool(size_t page_bytes, size_t budget_bytes) {
  auto pool = PagePool::Make(page_bytes, budget_bytes);
  EXPECT_TRUE(pool.ok()) << pool.status().ToString();
  return std::move(pool).value();
}

TEST(PagePool, TakesAsManyPagesAsTheBudgetHolds) {
  EXPECT_EQ(MakePool(128, 1000)->stats().capacity_pages, 7u);
  EXPECT_EQ(MakePool(100, 1000)->stats().capacity_pages, 7u);  // a page of 100 takes 128
}

TEST(PagePool, RefusesABudgetBelowOnePage) {
  const auto pool = PagePool::Make(113920, 113919);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(pool.status().message(), HasSubstr("113919"));
}

TEST(PagePool, RefusesWhenFull) {
  const auto pool = MakePool(64, 2 * 64);
  auto first = pool->Acquire();
  auto second = pool->Acquire();
  ASSERT_TRUE(first.ok() && second.ok());
  const auto third = pool->Acquire();
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(third.status().message(), HasSubstr("all 2 pages"));
  *first = PageHandle();
  EXPECT_TRUE(pool->Acquire().ok());
}

TEST(PagePool, PagesAreAlignedAndApart) {
  const auto pool = MakePool(100, 10 * 128);
  std::vector<PageHandle> pages;
  std::set<uint8_t*> starts;
  for (int i = 0; i < 10; ++i) {
    auto page = pool->Acquire();
    ASSERT_TRUE(page.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page->bytes()) % 64, 0u);
    starts.insert(page->bytes());
    pages.push_back(std::move(page).value());
  }
  ASSERT_EQ(starts.size(), 10u);
  for (auto at = std::next(starts.begin()); at != starts.end(); ++at) {
    EXPECT_GE(*at - *std::prev(at), 100);
  }
}

TEST(PagePool, GivesPagesOfZerosOnly) {
  const auto pool = MakePool(4096, 4096);
  for (int round = 0; round < 2; ++round) {
    auto page = pool->Acquire();
    ASSERT_TRUE(page.ok());
    uint8_t* bytes = page->bytes();
    EXPECT_TRUE(std::all_of(bytes, bytes + 4096, [](uint8_t b) { return b == 0; }));
    std::fill(bytes, bytes + 4096, uint8_t{0xab});
  }
}

TEST(PagePool, KeepsASharedPageUntilItsLastHandleGoes) {
  const auto pool = MakePool(64, 64);
  auto page = pool->Acquire();
  ASSERT_TRUE(page.ok());
  PageHandle first = std::move(page).value();
  PageHandle second = first.Share();
  EXPECT_EQ(first.bytes(), second.bytes());
  first = PageHandle();
  EXPECT_FALSE(first);
  EXPECT_EQ(pool->stats().pages_in_use, 1u);
  EXPECT_FALSE(pool->Acquire().ok());
  second = PageHandle();
  EXPECT_EQ(pool->stats().pages_in_use, 0u);
  EXPECT_TRUE(pool->Acquire().ok());
}

TEST(PagePool, MovingAHandleMovesItsPin) {
  const auto pool = MakePool(64, 2 * 64);
  PageHandle a = std::move(pool->Acquire()).value();
  PageHandle b = std::move(pool->Acquire()).value();
  uint8_t* const bytes = a.bytes();
  b = std::move(a);  // b's own page goes back
  EXPECT_EQ(b.bytes(), bytes);
  EXPECT_EQ(pool->stats().pages_in_use, 1u);
  const PageHandle c(std::move(b));
  EXPECT_EQ(c.bytes(), bytes);
  EXPECT_EQ(pool->stats().pages_in_use, 1u);
}

TEST(PagePool, CountsUseAndHighWater) {
  const auto pool = MakePool(100, 10 * 128);
  {
    const PageHandle a = std::move(pool->Acquire()).value();
    const PageHandle b = std::move(pool->Acquire()).value();
    EXPECT_EQ(pool->stats().bytes_in_use(), 200u);
  }
  const PageHandle c = std::move(pool->Acquire()).value();
  EXPECT_EQ(pool->stats().pages_in_use, 1u);
  EXPECT_EQ(pool->stats().high_water_pages, 2u);
  EXPECT_EQ(pool->stats().capacity_bytes(), 1000u);
}

TEST(PagePool, ReclaimsBeforeItRefuses) {
  const auto pool = MakePool(64, 2 * 64);
  std::vector<PageHandle> spare;
  spare.push_back(std::move(pool->Acquire()).value());
  const PageHandle held = std::move(pool->Acquire()).value();
  pool->SetReclaim([&spare] {
    if (spare.empty()) return false;
    spare.pop_back();
    return true;
  });
  const auto page = pool->Acquire();
  EXPECT_TRUE(page.ok());
  EXPECT_TRUE(spare.empty());
  EXPECT_EQ(pool->Acquire().status().code(), StatusCode::kResourceExhausted);
}

TEST(PagePool, AHandleKnowsWhetherOthersPinItsPage) {
  const auto pool = MakePool(64, 64);
  const PageHandle first = std::move(pool->Acquire()).value();
  EXPECT_FALSE(first.is_shared());
  {
    const PageHandle second = first.Share();
    EXPECT_TRUE(first.is_shared());
    EXPECT_TRUE(second.is_shared());
  }
  EXPECT_FALSE(first.is_shared());
}

TEST(PagePool, ThreadsNeverHoldTheSamePage) {
  const auto pool = MakePool(64, 8 * 64);
  std::vector<int> collisions(4, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        auto page = pool->Acquire();
        if (!page.ok()) continue;
        const PageHandle shared = page->Share();
        *page = PageHandle();
        if (shared.bytes()[0] != 0) ++collisions[static_cast<size_t>(t)];
        shared.bytes()[0] = static_cast<uint8_t>(t + 1);
        if (shared.bytes()[0] != t + 1) ++collisions[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(collisions, std::vector<int>(4, 0));
  EXPECT_EQ(pool->stats().pages_in_use, 0u);
  EXPECT_LE(pool->stats().high_water_pages, 8u);
}

TEST(PagePool, DefaultBudgetIsAShareOfMemory) {
  const auto budget = DefaultPoolBudget();
  ASSERT_TRUE(budget.ok()) << budget.status().ToString();
  EXPECT_GT(*budget, size_t{1} << 20);
}

}  // namespace
}  // namespace emberkv
