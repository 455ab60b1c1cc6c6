#include "ledger/lru_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <random>
#include <utility>

namespace emberkv {
namespace {

TEST(LruPages, DropsWhatWasUsedLongestAgo) {
  LruPages pages;
  pages.Insert(1, 10);
  pages.Insert(2, 20);
  pages.Insert(0, 30);
  EXPECT_EQ(pages.oldest_use_us(), 10);
  EXPECT_TRUE(pages.Touch(1, 40));
  EXPECT_FALSE(pages.Touch(3, 40));
  EXPECT_EQ(pages.oldest_use_us(), 20);
  pages.DropOldest();
  EXPECT_FALSE(pages.Touch(2, 50));
  EXPECT_TRUE(pages.Touch(0, 50));
  EXPECT_EQ(pages.oldest_use_us(), 40);
  EXPECT_EQ(pages.size(), 2u);
}

// A list that is searched from its beginning says what must happen.
TEST(LruPages, AgreesWithAPlainListWhateverTheIds) {
  const auto small = [](std::mt19937_64& random) { return random() % 300; };
  // Ids of 32 hashes around the table's end, ten of each: they probe into one another.
  const auto crowded = [](std::mt19937_64& random) {
    constexpr uint64_t kInverse = 0xf1de83e19937733d;  // of the hash's factor, modulo 2^64
    const auto hash = static_cast<uint32_t>(random() % 32 - 16);
    return (uint64_t{hash} << 32 | random() % 10) * kInverse;
  };
  for (const bool is_crowded : {false, true}) {
    std::mt19937_64 random(7);
    LruPages pages;
    std::list<std::pair<uint64_t, int64_t>> model;  // oldest first
    for (int64_t now_us = 1; now_us < 40'000; ++now_us) {
      const uint64_t page = is_crowded ? crowded(random) : small(random);
      const auto found = std::find_if(model.begin(), model.end(),
                                      [&](const auto& held) { return held.first == page; });
      ASSERT_EQ(pages.Touch(page, now_us), found != model.end());
      if (found == model.end()) {
        pages.Insert(page, now_us);
      } else {
        model.erase(found);
      }
      model.emplace_back(page, now_us);
      const size_t limit = now_us % 1000 < 500 ? 200 : 20;
      while (model.size() > limit) {
        pages.DropOldest();
        model.pop_front();
      }
      ASSERT_EQ(pages.size(), model.size());
      ASSERT_EQ(pages.oldest_use_us(), model.front().second);
    }
  }
}

}  // namespace
}  // namespace emberkv
