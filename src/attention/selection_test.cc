#include "attention/selection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "attention/attention_reference.h"
#include "base/isa.h"
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
      case 0:
        v = RoundToBf16(normal(rng));
        break;
      case 1:
        v = static_cast<float>(rng() % 4);
        break;
      case 2:
        v = 0.0f;
        break;
      case 3:
        v = rng() % 2 == 0 ? 0.0f : -0.0f;
        break;
      case 4:
        v = static_cast<float>(i);
        break;
      case 5:
        v = static_cast<float>(-i);
        break;
      case 6:
        v = rng() % 3 == 0 ? -kInfinity : RoundToBf16(normal(rng));
        break;
      default:
        v = -kInfinity;
        break;
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

// Long lists are sampled first. Whatever the sample says, the choice is that of a full sort.
std::vector<float> LongScores(int kind, int n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> s(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    float& v = s[static_cast<size_t>(i)];
    switch (kind) {
      case 0:
        v = normal(rng);
        break;
      case 1:
        v = static_cast<float>(i);
        break;
      case 2:
        v = static_cast<float>(-i);
        break;
      case 3:
        v = static_cast<float>(rng() % 1000);
        break;
      case 4:
        v = 1.0f;
        break;
      case 5:
        v = i >= n / 2 && i < n / 2 + 600 ? 5.0f + normal(rng) : 0.1f * normal(rng);
        break;
      case 6:
        v = rng() % 1000 == 0 ? normal(rng) : 0.0f;
        break;
      case 7:
        v = rng() % 2 == 0 ? -kInfinity : normal(rng);
        break;
      case 8:
        v = rng() % 5 == 0 ? std::nanf("") : normal(rng);
        break;
      case 9:
        v = rng() % 5 == 0 ? kInfinity : -kInfinity;
        break;
      // The runs that are sampled are the greatest, and only they.
      case 10:
        v = i % 512 < 16 ? 100.0f + static_cast<float>(i % 16) : -static_cast<float>(i % 512);
        break;
      default:
        v = -kInfinity;
        break;
    }
  }
  return s;
}

TEST(TopK, SampledPiecesEqualAFullSort) {
  std::mt19937 rng(5);
  for (int kind = 0; kind < 12; ++kind) {
    std::vector<float> s = LongScores(kind, 1 << 16, rng);
    std::vector<float> for_sort = s;
    for (float& v : for_sort) v = std::isnan(v) ? -kInfinity : v;
    for (const Isa isa : SupportedIsas()) {
      ScopedIsa forced(isa);
      for (const int k : {1, 512, 2048, 20000}) {
        for (const int piece : {1 << 16, 30000, 8192}) {
          TopK topk;
          topk.Reset(k);
          for (int i = 0; i < 1 << 16; i += piece)
            topk.Push(s.data() + i, std::min(piece, (1 << 16) - i), i);
          std::vector<int32_t> got;
          topk.Finish(&got);
          EXPECT_EQ(got, reference::TopK(for_sort, k)) << kind << " k " << k << " piece " << piece;
        }
      }
    }
  }
}

TEST(TopK, PartsMergedInAnyOrderEqualTheWhole) {
  std::mt19937 rng(6);
  for (int kind = 0; kind < 12; ++kind) {
    const std::vector<float> s = LongScores(kind, 40000, rng);
    TopK whole, parts[3];
    for (TopK* t : {&whole, &parts[0], &parts[1], &parts[2]}) t->Reset(300);
    whole.Push(s.data(), 40000, 0);
    for (int i = 0; i < 40000; i += 1000) parts[rng() % 3].Push(s.data() + i, 1000, i);
    parts[2].Merge(&parts[0]);
    parts[2].Merge(&parts[1]);
    std::vector<int32_t> want, got;
    whole.Finish(&want);
    parts[2].Finish(&got);
    EXPECT_EQ(got, want) << kind;
  }
}

TEST(CandidatePool, LongPiecesEqualTheReference) {
  std::mt19937 rng(7);
  for (int kind = 0; kind < 12; ++kind) {
    if (kind == 8) continue;  // the reference does not define NaN
    const std::vector<float> s = LongScores(kind, 1 << 17, rng);
    for (const Isa isa : SupportedIsas()) {
      ScopedIsa forced(isa);
      for (const int block_size : {8, 5}) {
        CandidatePool pool;
        pool.Reset(500, block_size);
        pool.Push(s.data(), (1 << 17) - 3, 0);
        std::vector<int32_t> got;
        pool.Finish(&got);
        EXPECT_EQ(got, reference::CandidateBlocks({s.data(), (1u << 17) - 3}, 500, block_size))
            << kind;
      }
    }
  }
}

TEST(CandidatePool, PartsMergedEqualTheWholeAndKeepTheNewestBlock) {
  std::mt19937 rng(8);
  for (int kind = 0; kind < 12; ++kind) {
    if (kind == 8) continue;
    const std::vector<float> s = LongScores(kind, 20003, rng);
    CandidatePool parts[2];
    for (CandidatePool& part : parts) part.Reset(100, 8);
    for (int i = 0; i < 20003; i += 800)
      parts[rng() % 2].Push(s.data() + i, std::min(800, 20003 - i), i);
    parts[0].Merge(&parts[1]);
    std::vector<int32_t> got;
    parts[0].Finish(&got);
    EXPECT_EQ(got, reference::CandidateBlocks(s, 100, 8)) << kind;
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
