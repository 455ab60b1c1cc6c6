#include "attention/index_select.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr int kHeads = 3, kDim = 32, kRowsPerBlock = 48;

// Keys of one sequence and queries that see different numbers of them. Few distinct keys, so scores
// tie.
struct Sequence {
  std::vector<std::vector<uint8_t>> pages;
  std::vector<const uint8_t*> page_pointers;
  std::vector<float> q, w;
  std::vector<int64_t> visible;
  std::vector<std::vector<int32_t>> selected, candidates;

  Sequence(int n, int queries, unsigned seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    const size_t row_bytes = RowBytes(RowFormat::kIndexKey, kDim);
    std::vector<float> x(kDim);
    for (int j = 0; j < n; ++j) {
      if (j % kRowsPerBlock == 0) pages.emplace_back(kRowsPerBlock * row_bytes);
      std::mt19937 key_rng(rng() % 300);
      for (float& v : x) v = RoundToBf16(normal(key_rng));
      EXPECT_TRUE(EncodeRows(
          RowFormat::kIndexKey, x.data(), kDim, 1, kDim,
          pages.back().data() + static_cast<size_t>(j % kRowsPerBlock) * row_bytes, row_bytes));
    }
    for (const auto& page : pages) page_pointers.push_back(page.data());
    for (int i = 0; i < queries; ++i) visible.push_back(n - 5 * (queries - 1 - i));
    q.resize(static_cast<size_t>(queries * kHeads * kDim));
    for (float& v : q) v = RoundToBf16(normal(rng));
    RoundRows(RowFormat::kIndexKey, q.data(), kDim, queries * kHeads, kDim);
    w.resize(static_cast<size_t>(queries * kHeads));
    for (float& v : w) v = RoundToBf16(normal(rng));
    selected.resize(visible.size());
    candidates.resize(visible.size());
  }

  IndexGroup group() {
    return {{q.data(), w.data(), visible, kHeads, kDim},
            {page_pointers.data(), 0, kRowsPerBlock, RowBytes(RowFormat::kIndexKey, kDim)},
            selected.data(),
            candidates.data()};
  }
};

struct Chosen {
  std::vector<std::vector<std::vector<int32_t>>> selected, candidates, filtered;
  bool operator==(const Chosen&) const = default;
};

// Chooses candidates and rows, then rows within the candidates.
Chosen Choose(std::vector<Sequence> sequences, int threads) {
  ThreadPool pool(threads);
  std::vector<IndexScanner> scanners(static_cast<size_t>(threads));
  std::vector<IndexGroup> groups;
  for (Sequence& s : sequences) groups.push_back(s.group());
  Chosen chosen;
  SelectRows(groups, {50, {700, 8}, CandidateUse::kChoose}, scanners, &pool);
  for (const Sequence& s : sequences) {
    chosen.selected.push_back(s.selected);
    chosen.candidates.push_back(s.candidates);
  }
  SelectRows(groups, {50, {700, 8}, CandidateUse::kFilter}, scanners, &pool);
  for (const Sequence& s : sequences) chosen.filtered.push_back(s.selected);
  return chosen;
}

TEST(SelectRows, ThreadsAndNeighboursChangeNothing) {
  std::vector<Sequence> sequences;
  for (const int n : {9000, 1, 300, 20000})
    sequences.emplace_back(n, n > 16 ? 4 : 1, static_cast<unsigned>(n));
  std::vector<Chosen> alone;
  for (const Sequence& s : sequences) alone.push_back(Choose({s}, 1));
  for (const int threads : {1, 2, 3, 5}) {
    const Chosen together = Choose(sequences, threads);
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(together.selected[i], alone[i].selected[0]) << threads;
      EXPECT_EQ(together.candidates[i], alone[i].candidates[0]) << threads;
      EXPECT_EQ(together.filtered[i], alone[i].filtered[0]) << threads;
      EXPECT_EQ(Choose({sequences[i]}, threads), alone[i]) << threads;
    }
  }
  // 700 blocks hold 5,600 of 9,000 keys, so the filter had something to do.
  EXPECT_EQ(alone[0].candidates[0][0].size(), 700u);
}

// With every block kept, the candidates hide nothing.
TEST(SelectRows, FilteringByAllBlocksEqualsNoFilter) {
  Sequence s(5000, 2, 4);
  const Chosen chosen = Choose({s}, 2);
  EXPECT_EQ(chosen.candidates[0][0].size(), 625u);
  EXPECT_EQ(chosen.filtered, chosen.selected);
}

}  // namespace
}  // namespace emberkv
