#include "attention/index_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <tuple>

#include "attention/attention_reference.h"
#include "base/isa.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

// Packed keys in pages of 32 rows, their decoded values, and queries rounded as the model does.
struct Fixture {
  int heads, dim, n;
  std::vector<std::vector<uint8_t>> pages;
  std::vector<const uint8_t*> page_pointers;
  std::vector<float> keys, q, w;
  std::vector<int64_t> visible;

  Fixture(int heads_in, int dim_in, int n_in, int queries) : heads(heads_in), dim(dim_in), n(n_in) {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    const size_t row_bytes = RowBytes(RowFormat::kIndexKey, dim);
    std::vector<float> x(static_cast<size_t>(dim));
    keys.resize(static_cast<size_t>(n * dim));
    for (int j = 0; j < n; ++j) {
      if (j % 32 == 0) pages.emplace_back(32 * row_bytes + 5);
      for (float& v : x) v = RoundToBf16(normal(rng));
      uint8_t* row = pages.back().data() + 5 + static_cast<size_t>(j % 32) * row_bytes;
      EXPECT_TRUE(EncodeRows(RowFormat::kIndexKey, x.data(), x.size(), 1, dim, row, row_bytes));
      DecodeRow(RowFormat::kIndexKey, row, dim, keys.data() + j * dim);
    }
    for (const auto& page : pages) page_pointers.push_back(page.data());
    q.resize(static_cast<size_t>(queries * heads * dim));
    for (float& v : q) v = RoundToBf16(normal(rng));
    RoundRows(RowFormat::kIndexKey, q.data(), static_cast<size_t>(dim), queries * heads, dim);
    w.resize(static_cast<size_t>(queries * heads));
    for (float& v : w) v = RoundToBf16(normal(rng) / 16);
    for (int i = 0; i < queries; ++i) visible.push_back(n - (queries - 1 - i) * 3);
  }

  PagedRows rows() const {
    return {page_pointers.data(), 5, 32, RowBytes(RowFormat::kIndexKey, dim)};
  }
  IndexQueries queries() const { return {q.data(), w.data(), visible, heads, dim}; }
  std::vector<float> ReferenceScores(int i) const {
    std::vector<float> s(static_cast<size_t>(visible[static_cast<size_t>(i)]));
    for (size_t j = 0; j < s.size(); ++j) {
      s[j] =
          reference::IndexScore(q.data() + i * heads * dim, keys.data() + static_cast<int>(j) * dim,
                                w.data() + i * heads, heads, dim);
    }
    return s;
  }
};

TEST(IndexScanner, SelectsWhatTheReferenceSelectsOnEveryIsa) {
  for (auto [heads, dim, n] : {std::tuple{4, 64, 300}, {8, 32, 61}, {5, 128, 200}}) {
    const Fixture f(heads, dim, n, 9);
    const CandidateLimits pool{6, 8};
    for (Isa isa : SupportedIsas()) {
      ScopedIsa forced(isa);
      IndexScanner scanner;
      std::vector<int32_t> selected[9], candidates[9], within;
      scanner.Begin(f.queries(), 16, &pool);
      scanner.ScanRange(f.rows(), 0, n);
      scanner.Finish(selected, candidates);
      for (int i = 0; i < 9; ++i) {
        std::vector<float> s = f.ReferenceScores(i);
        EXPECT_EQ(selected[i], reference::TopK(s, 16)) << IsaName(isa);
        EXPECT_EQ(candidates[i], reference::CandidateBlocks(s, 6, 8)) << IsaName(isa);
        for (size_t j = 0; j < s.size(); ++j) {
          const int32_t block = static_cast<int32_t>(j) / 8;
          if (std::find(candidates[i].begin(), candidates[i].end(), block) == candidates[i].end()) {
            s[j] = -std::numeric_limits<float>::infinity();
          }
        }
        const int64_t blocks = static_cast<int64_t>(candidates[i].size());
        scanner.Begin(f.queries(), 16, nullptr);
        scanner.ScanBlocks(i, f.rows(), candidates[i], 8, 0, blocks);
        scanner.FinishBlocks(i, candidates[i], 8, &within);
        EXPECT_EQ(within, reference::TopK(s, 16)) << IsaName(isa);
      }
    }
  }
}

TEST(IndexScanner, GroupingQueriesChangesNothing) {
  const Fixture f(4, 64, 500, 12);
  IndexScanner scanner;
  std::vector<int32_t> together[12];
  scanner.Begin(f.queries(), 20, nullptr);
  scanner.ScanRange(f.rows(), 0, 500);
  scanner.Finish(together, nullptr);
  for (int i = 0; i < 12; ++i) {
    IndexQueries one = f.queries();
    one.q += i * 4 * 64;
    one.w += i * 4;
    one.visible = one.visible.subspan(static_cast<size_t>(i), 1);
    std::vector<int32_t> alone;
    scanner.Begin(one, 20, nullptr);
    scanner.ScanRange(f.rows(), 0, 500);
    scanner.Finish(&alone, nullptr);
    EXPECT_EQ(alone, together[i]);
  }
}

TEST(IndexScanner, RangesScannedApartAndMergedChangeNothing) {
  const Fixture f(4, 64, 3000, 5);
  const CandidateLimits pool{40, 8};
  IndexScanner one, other;
  std::vector<int32_t> whole[5], whole_blocks[5], merged[5], merged_blocks[5];
  one.Begin(f.queries(), 64, &pool);
  one.ScanRange(f.rows(), 0, 3000);
  one.Finish(whole, whole_blocks);
  for (const bool last_by_other : {false, true}) {
    one.Begin(f.queries(), 64, &pool);
    other.Begin(f.queries(), 64, &pool);
    for (int64_t begin = 0, turn = last_by_other ? 1 : 0; begin < 3000; begin += 504, ++turn) {
      (turn % 2 == 0 ? one : other).ScanRange(f.rows(), begin, begin + 504);
    }
    one.Merge(&other);
    one.Finish(merged, merged_blocks);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(merged[i], whole[i]);
      EXPECT_EQ(merged_blocks[i], whole_blocks[i]);
    }
  }
}

TEST(IndexScanner, MemoryDoesNotGrowWithTheContext) {
  const Fixture f(4, 64, 40000, 2);
  const CandidateLimits pool{40, 8};
  IndexScanner scanner;
  scanner.Begin(f.queries(), 64, &pool);
  scanner.ScanRange(f.rows(), 0, 300);
  const size_t early = scanner.bytes();
  scanner.ScanRange(f.rows(), 304, 40000);
  EXPECT_EQ(scanner.bytes(), early);
}

}  // namespace
}  // namespace emberkv
