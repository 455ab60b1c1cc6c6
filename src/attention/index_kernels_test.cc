#include "attention/index_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/attention_reference.h"
#include "attention/index_scan.h"
#include "base/isa.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

// How the e8m0 scales of keys, or the exponents of queries, are drawn.
struct Exponents {
  const char* name;
  int least, most;
};

constexpr Exponents kKeyExponents[] = {{"narrow", 124, 127},
                                       {"equal", 127, 127},
                                       {"at the edge of narrow", 120, 124},
                                       {"wide", 110, 140},
                                       {"very wide", 60, 190},
                                       {"tiny", 0, 12},
                                       {"huge", 240, 254},
                                       {"tiny, one zero group's", 1, 2}};
constexpr Exponents kQueryExponents[] = {{"narrow", -1, 2},           {"edge", -2, 2},
                                         {"wide", -15, 15},           {"tiny", -99, -80},
                                         {"beyond tiny", -124, -110}, {"huge", 95, 120}};
constexpr float kFp4[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};

enum class Weights { kOrdinary, kZeroAndSigned, kTiny, kHuge };

struct Case {
  int heads = 0, dim = 0, n = 0;
  std::vector<uint8_t> rows;
  std::vector<float> q, w;

  size_t row_bytes() const { return RowBytes(RowFormat::kIndexKey, dim); }
};

int Draw(std::mt19937& rng, const Exponents& e) {
  return e.least + static_cast<int>(rng() % static_cast<unsigned>(e.most - e.least + 1));
}

Case MakeCase(int heads, int dim, int n, const Exponents& keys, const Exponents& queries,
              Weights weights, unsigned seed) {
  std::mt19937 rng(seed);
  Case c{heads, dim, n, {}, {}, {}};
  const size_t codes = static_cast<size_t>(dim / 2);
  c.rows.resize(static_cast<size_t>(n) * c.row_bytes());
  for (int r = 0; r < n; ++r) {
    uint8_t* row = c.rows.data() + static_cast<size_t>(r) * c.row_bytes();
    // Some rows are few distinct codes, for cancellation and ties; some groups are zero, of either
    // sign.
    const unsigned mask = rng() % 4 == 0 ? 0x9999u : 0xffffu;
    for (size_t i = 0; i < codes; ++i) row[i] = static_cast<uint8_t>(rng() & mask);
    for (int g = 0; g < dim / 32; ++g) {
      row[codes + static_cast<size_t>(g)] = static_cast<uint8_t>(Draw(rng, keys));
      if (rng() % 8 != 0) continue;
      std::memset(row + 16 * g, rng() % 2 == 0 ? 0 : 0x88, 16);
      row[codes + static_cast<size_t>(g)] = 1;
    }
  }
  for (int h = 0; h < heads; ++h) {
    for (int g = 0; g < dim / 32; ++g) {
      const float unit = rng() % 8 == 0 ? 0.0f : std::ldexp(1.0f, Draw(rng, queries));
      for (int i = 0; i < 32; ++i) {
        const float v = kFp4[rng() % 8] * unit;
        c.q.push_back(rng() % 2 == 0 ? v : -v);
      }
    }
    const float w = RoundToBf16(static_cast<float>(rng() % 1000) / 1000.0f - 0.5f);
    switch (weights) {
      case Weights::kOrdinary:
        c.w.push_back(w);
        break;
      case Weights::kZeroAndSigned:
        c.w.push_back(rng() % 2 == 0 ? w : (rng() % 2 == 0 ? 0.0f : -0.0f));
        break;
      case Weights::kTiny:
        c.w.push_back(std::ldexp(w, -90 - static_cast<int>(rng() % 40)));
        break;
      case Weights::kHuge:
        c.w.push_back(std::ldexp(w, 80 + static_cast<int>(rng() % 40)));
        break;
    }
  }
  return c;
}

std::vector<float> ReferenceScores(const Case& c) {
  std::vector<float> key(static_cast<size_t>(c.dim)), scores;
  for (int r = 0; r < c.n; ++r) {
    DecodeRow(RowFormat::kIndexKey, c.rows.data() + static_cast<size_t>(r) * c.row_bytes(), c.dim,
              key.data());
    scores.push_back(reference::IndexScore(c.q.data(), key.data(), c.w.data(), c.heads, c.dim));
  }
  return scores;
}

std::vector<float> ScannedScores(const Case& c) {
  const uint8_t* page = c.rows.data();
  const int64_t visible[] = {c.n};
  IndexScanner scanner;
  scanner.Begin({c.q.data(), c.w.data(), visible, c.heads, c.dim}, 1, nullptr);
  std::vector<float> scores(static_cast<size_t>(c.n));
  scanner.Score(0, {&page, 0, c.n, c.row_bytes()}, 0, c.n, scores.data());
  return scores;
}

// Equal bits, but any NaN equals any other.
void ExpectSame(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    uint32_t a, b;
    std::memcpy(&a, &got[i], 4);
    std::memcpy(&b, &want[i], 4);
    ASSERT_EQ(a, b) << "key " << i << ": " << got[i] << " for " << want[i];
  }
}

TEST(IndexScores, AreTheReferencesBitsOnEveryIsaWhateverTheExponents) {
  unsigned seed = 1;
  for (const Exponents& keys : kKeyExponents) {
    for (const Exponents& queries : kQueryExponents) {
      for (const Weights weights :
           {Weights::kOrdinary, Weights::kZeroAndSigned, Weights::kTiny, Weights::kHuge}) {
        for (auto [heads, dim, n] :
             {std::tuple{32, 128, 70}, {8, 32, 33}, {5, 64, 31}, {3, 96, 64}, {9, 128, 1}}) {
          const Case c = MakeCase(heads, dim, n, keys, queries, weights, ++seed);
          const std::vector<float> want = ReferenceScores(c);
          for (const Isa isa : SupportedIsas()) {
            ScopedIsa forced(isa);
            SCOPED_TRACE(std::string(IsaName(isa)) + ": keys " + keys.name + ", queries " +
                         queries.name);
            ExpectSame(ScannedScores(c), want);
          }
        }
      }
    }
  }
}

// The largest sums the integer path can meet, and dots that round to a tie.
TEST(IndexScores, LargestCodesOfOneSignAddUp) {
  for (const int spread : {0, 3, 4, 11, 12}) {
    Case c = MakeCase(32, 128, 64, {"", 127, 127}, {"", 0, 0}, Weights::kOrdinary, 5);
    for (int r = 0; r < c.n; ++r) {
      uint8_t* row = c.rows.data() + static_cast<size_t>(r) * c.row_bytes();
      std::memset(row, r % 2 == 0 ? 0x77 : 0xff, 64);
      for (int g = 0; g < 4; ++g)
        row[64 + g] = static_cast<uint8_t>(120 + (g == r % 4 ? spread : 0));
    }
    for (size_t i = 0; i < c.q.size(); ++i)
      c.q[i] = std::ldexp(i / 128 % 2 == 0 ? 6.0f : -6.0f, i / 32 % 4 == 1 ? spread : 0);
    const std::vector<float> want = ReferenceScores(c);
    for (const Isa isa : SupportedIsas()) {
      ScopedIsa forced(isa);
      ExpectSame(ScannedScores(c), want);
    }
  }
}

TEST(IndexScores, QueriesThatAreNotFp4AreScoredPlainly) {
  Case c = MakeCase(8, 64, 40, kKeyExponents[0], kQueryExponents[0], Weights::kOrdinary, 3);
  for (const float odd : {5.0f, 0.75f, 7.0f, std::numeric_limits<float>::infinity()}) {
    c.q[17] = odd;
    c.q[18] = 6.0f;
    const std::vector<float> want = ReferenceScores(c);
    for (const Isa isa : SupportedIsas()) {
      ScopedIsa forced(isa);
      ExpectSame(ScannedScores(c), want);
    }
  }
}

// Prepares one query of `c` and returns which tiles the dot path leaves to the plain one.
std::vector<uint16_t> LeftPlain(const Case& c, DotQuery* query) {
  const size_t heads = static_cast<size_t>((c.heads + 7) / 8 * 8);
  alignas(64) static uint8_t space[1 << 16];
  uint8_t* at = space;
  const auto take = [&](size_t bytes) { return std::exchange(at, at + (bytes + 63) / 64 * 64); };
  query->codes = reinterpret_cast<int8_t*>(take(heads * static_cast<size_t>(c.dim)));
  query->bias = reinterpret_cast<int32_t*>(take(4 * heads));
  query->group_bias = reinterpret_cast<int32_t*>(take(16 * heads));
  query->weights = reinterpret_cast<float*>(take(4 * heads));
  query->folded = reinterpret_cast<float*>(take(4 * heads));
  query->group_units = reinterpret_cast<float*>(take(16 * heads));
  ActiveIndexKernels().prepare(c.q.data(), c.w.data(), c.heads, c.dim, query);
  std::vector<const uint8_t*> rows(static_cast<size_t>(c.n + kDotTileRows + kDotAhead),
                                   c.rows.data());
  for (int r = 0; r < c.n; ++r)
    rows[static_cast<size_t>(r)] = c.rows.data() + static_cast<size_t>(r) * c.row_bytes();
  std::vector<float> scores(static_cast<size_t>(c.n + kDotTileRows));
  std::vector<uint16_t> left(static_cast<size_t>((c.n + kDotTileRows - 1) / kDotTileRows), 9);
  ActiveIndexKernels().dot_scores({rows.data(), c.n}, query, &c.n, 1, scores.data(), 0,
                                  left.data());
  return left;
}

// Without this the tests above could pass with nothing but the plain path.
TEST(IndexScores, TheDotPathTakesOrdinaryTilesAndLeavesExtremeOnes) {
  const std::vector<Isa> isas = SupportedIsas();
  if (isas.back() != Isa::kAvx512Dot) GTEST_SKIP() << "no byte dot products on this CPU";
  ScopedIsa forced(Isa::kAvx512Dot);
  const auto left = [](const Exponents& keys, const Exponents& queries, bool* narrow) {
    DotQuery query;
    const std::vector<uint16_t> tiles =
        LeftPlain(MakeCase(32, 128, 64, keys, queries, Weights::kOrdinary, 7), &query);
    *narrow = query.narrow;
    EXPECT_EQ(tiles[0], tiles[1]);
    return tiles[0];
  };
  bool narrow = false;
  EXPECT_EQ(left(kKeyExponents[0], kQueryExponents[0], &narrow), 0);
  EXPECT_TRUE(narrow);
  EXPECT_EQ(left(kKeyExponents[3], kQueryExponents[0], &narrow), 0);
  EXPECT_EQ(left(kKeyExponents[3], kQueryExponents[2], &narrow), 0);
  EXPECT_FALSE(narrow);
  EXPECT_EQ(left(kKeyExponents[5], kQueryExponents[0], &narrow), 1);
  EXPECT_EQ(left(kKeyExponents[6], kQueryExponents[0], &narrow), 1);
}

}  // namespace
}  // namespace emberkv
