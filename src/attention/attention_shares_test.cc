#include "attention/attention_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<AttentionShare> SharesOf(int64_t rows, int heads, int threads) {
  ThreadPool pool(threads);
  std::mutex mutex;
  std::vector<AttentionShare> shares;
  ForEachAttentionShare(rows, heads, &pool, [&](const AttentionShare& share, int thread) {
    EXPECT_LT(thread, threads);
    const std::lock_guard lock(mutex);
    shares.push_back(share);
  });
  return shares;
}

TEST(AttentionShares, CoverEachHeadOnce) {
  for (const int threads : {1, 2, 3, 4, 16}) {
    for (const int64_t rows : {0, 1, 2, 3, 5, 7, 9, 40}) {
      for (const int heads : {1, 8, 16, 17, 40, 64}) {
        std::vector<int> seen(static_cast<size_t>(rows * heads));
        for (const AttentionShare& share : SharesOf(rows, heads, threads)) {
          EXPECT_GT(share.num_heads, 0);
          for (int h = share.first_head; h < share.first_head + share.num_heads; ++h) {
            ++seen[static_cast<size_t>(share.row * heads + h)];
          }
        }
        EXPECT_THAT(seen, ::testing::Each(1)) << threads << " threads, " << rows << " rows of " << heads << " heads";
      }
    }
  }
}

TEST(AttentionShares, HeadsAreDividedWhereRowsAreFew) {
  EXPECT_THAT(SharesOf(1, 64, 1), ElementsAre(AttentionShare{0, 0, 64}));
  EXPECT_THAT(SharesOf(1, 64, 2), UnorderedElementsAre(AttentionShare{0, 0, 32}, AttentionShare{0, 32, 32}));
  EXPECT_THAT(SharesOf(2, 64, 2), UnorderedElementsAre(AttentionShare{0, 0, 64}, AttentionShare{1, 0, 64}));
  EXPECT_EQ(SharesOf(3, 64, 2).size(), 6u);
  EXPECT_EQ(SharesOf(1, 64, 16).size(), 4u);
  EXPECT_EQ(SharesOf(1, 8, 2).size(), 1u);
  EXPECT_EQ(SharesOf(9, 64, 2).size(), 9u);
}

}  // namespace
}  // namespace emberkv
