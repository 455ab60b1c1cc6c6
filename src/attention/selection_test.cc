#include "attention/selection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "attention/attention_reference.h"
#include "formats/bf16.h"

namespace emberkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Score lists in which the tie rule, the signs of zero and dropped entries all matter.
std::vector<float> Scores(int kind, int n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> s(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    float& v = s[static_cast<size_t>(i)];
    switch (kind) {
      case 0: v = RoundToBf16(normal(rng)); break;
      case 1: v = static_cast<float>(rng() % 4); break;
      case 2: v = 0.0f; break;
      case 3: v = rng() % 2 == 0 ? 0.0f : -0.0f; break;
      case 4: v = static_cast<float>(i); break;
      case 5: v = static_cast<float>(-i); break;
      case 6: v = rng() % 3 == 0 ? -kInfinity : RoundToBf16(normal(rng)); break;
      default: v = -kInfinity; break;
    }
  }
  return s;
}

TEST(TopK, EqualsAFullSortHoweverScoresArePushed) {
  std::mt19937 rng(1);
  for (int kind = 0; kind < 8; ++kind) {
    for (int n : {0, 1, 15, 16, 17, 700, 5000}) {
      const std::vector<float> s = Scores(kind, n, rng);
      for (int k : {1, 16, 64, 512}) {
        for (int piece : {1, 7, 64}) {
          TopK topk;
          topk.Reset(k);
          for (int i = 0; i < n; i += piece) topk.Push(s.data() + i, std::min(piece, n - i), i);
          std::vector<int32_t> got;
          topk.Finish(&got);
          EXPECT_EQ(got, reference::TopK(s, k)) << kind << " n " << n << " k " << k;
        }
      }
    }
  }
}

TEST(TopK, LowestPositionWinsTies) {
  TopK topk;
  topk.Reset(2);
  const std::vector<float> s = {1, 2, 2, 2, 1};
  topk.Push(s.data(), 5, 0);
  std::vector<int32_t> got;
  topk.Finish(&got);
  EXPECT_EQ(got, (std::vector<int32_t>{1, 2}));
}

TEST(CandidatePool, EqualsTheReferenceAndKeepsTheNewestBlock) {
  std::mt19937 rng(2);
  for (int kind = 0; kind < 8; ++kind) {
    for (int n : {1, 7, 8, 9, 333, 4096}) {
      const std::vector<float> s = Scores(kind, n, rng);
      for (int block_size : {1, 4, 8, 12}) {
        for (int blocks : {1, 3, 40}) {
          CandidatePool pool;
          pool.Reset(blocks, block_size);
          for (int i = 0; i < n; i += 64) pool.Push(s.data() + i, std::min(64, n - i), i);
          std::vector<int32_t> got;
          pool.Finish(&got);
          EXPECT_EQ(got, reference::CandidateBlocks(s, blocks, block_size)) << kind << " " << n;
          ASSERT_FALSE(got.empty());
          EXPECT_EQ(got.back(), (n - 1) / block_size);
        }
      }
    }
  }
}

}  // namespace
}  // namespace emberkv
