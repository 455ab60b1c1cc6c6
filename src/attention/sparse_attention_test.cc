#include "attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>

#include "attention/attention_reference.h"
#include "base/isa.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"

namespace emberkv {
namespace {

constexpr int kWindow = 32;

struct Fixture {
  int heads, dim;
  size_t window_bytes, global_bytes;
  std::vector<uint8_t> ring, chunk, page;
  const uint8_t* pages[1];
  std::vector<float> decoded;  // window positions 0..79, then global rows 0..99
  std::vector<float> q, sink;

  Fixture(int heads_in, int dim_in) : heads(heads_in), dim(dim_in) {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    window_bytes = RowBytes(RowFormat::kWindowKv, dim);
    global_bytes = RowBytes(RowFormat::kGlobalKv, dim);
    ring.resize(kWindow * window_bytes);
    chunk.resize(16 * window_bytes);
    page.resize(100 * global_bytes);
    pages[0] = page.data();
    decoded.resize(static_cast<size_t>(180 * dim));
    std::vector<float> x(static_cast<size_t>(dim));
    for (int i = 0; i < 180; ++i) {
      for (float& v : x) v = RoundToBf16(normal(rng));
      const RowFormat format = i < 80 ? RowFormat::kWindowKv : RowFormat::kGlobalKv;
      // Positions 64..79 are the chunk; of those before, the ring holds the last 32.
      uint8_t* row = i < 64   ? ring.data() + static_cast<size_t>(i % kWindow) * window_bytes
                     : i < 80 ? chunk.data() + static_cast<size_t>(i - 64) * window_bytes
                              : page.data() + static_cast<size_t>(i - 80) * global_bytes;
      EXPECT_TRUE(EncodeRows(format, x.data(), x.size(), 1, dim, row, RowBytes(format, dim)));
      DecodeRow(format, row, dim, decoded.data() + i * dim);
    }
    q.resize(static_cast<size_t>(heads * dim));
    for (float& v : q) v = RoundToBf16(normal(rng) * 2);
    sink.resize(static_cast<size_t>(heads));
    for (float& v : sink) v = normal(rng);
  }

  AttentionQuery Query(int64_t begin, int64_t end, const std::vector<int32_t>& selected) const {
    return {q.data(), heads, dim, sink.data(), kWindow,
            {ring.data(), chunk.data(), 64, kWindow, window_bytes},
            begin, end, {pages, 0, 100, global_bytes}, selected};
  }
  std::vector<float> Run(int64_t begin, int64_t end, const std::vector<int32_t>& selected) const {
    std::vector<float> out(q.size());
    SparseAttention attention;
    attention.Run(Query(begin, end, selected), out.data());
    return out;
  }
  std::vector<int32_t> Columns(int64_t begin, int64_t end, const std::vector<int32_t>& selected) const {
    std::vector<int32_t> ids;
    for (int64_t p = begin; p < end; ++p) ids.push_back(static_cast<int32_t>(p));
    ids.resize(kWindow, -1);
    for (int32_t j : selected) ids.push_back(80 + j);
    return ids;
  }
  std::vector<float> Exact(int64_t begin, int64_t end, const std::vector<int32_t>& selected) const {
    return reference::Attention(q.data(), decoded.data(), sink.data(), Columns(begin, end, selected), heads,
                                dim);
  }
  std::vector<float> Tiled(int64_t begin, int64_t end, const std::vector<int32_t>& selected) const {
    return reference::TiledAttention(q.data(), decoded.data(), sink.data(), Columns(begin, end, selected),
                                     heads, dim);
  }
};

TEST(SparseAttention, IsCloseToExactSoftmaxAndEqualsItsTwinOnEveryIsa) {
  std::vector<int32_t> many;
  for (int32_t j = 0; j < 100; j += 1 + j % 3) many.push_back(j);
  for (auto [heads, dim] : {std::pair{4, 64}, {6, 128}, {64, 32}, {81, 64}, {2, 512}}) {
    const Fixture f(heads, dim);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{48, 80}, {40, 70}, {79, 80}}) {
      for (const std::vector<int32_t>& selected : {std::vector<int32_t>{}, {5, 90}, many}) {
        const std::vector<float> exact = f.Exact(begin, end, selected);
        float top = 0;
        for (float v : exact) top = std::max(top, std::fabs(v));
        const std::vector<float> want = f.Tiled(begin, end, selected);
        for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want[i], exact[i], 8e-3f * top);
        for (Isa isa : SupportedIsas()) {
          ScopedIsa forced(isa);
          EXPECT_EQ(f.Run(begin, end, selected), want)
              << IsaName(isa) << ", " << heads << " heads of " << dim;
        }
      }
    }
  }
}

// Queries and rows of one tile list with whatever bf16 can hold, and holes anywhere.
struct HardCase {
  int heads, dim;
  std::vector<float> q, rows, sink;
  std::vector<int32_t> ids;
};

HardCase MakeHardCase(int kind, int heads, int dim, int columns, std::mt19937& rng) {
  HardCase c{heads, dim, {}, {}, {}, {}};
  const auto value = [&](int low_exponent, int high_exponent) {
    const int exponent =
        low_exponent + static_cast<int>(rng() % static_cast<unsigned>(high_exponent - low_exponent));
    const float v = std::ldexp(1.0f + static_cast<float>(rng() % 128) / 128.0f, exponent);
    return rng() % 2 == 0 ? v : -v;
  };
  // Magnitudes of queries: ordinary; so large that one row takes all; around the least operand; denormal and
  // up.
  constexpr int kLow[] = {-3, 2, -86, -133}, kHigh[] = {2, 9, -74, 3};
  for (int i = 0; i < heads * dim; ++i) {
    c.q.push_back(rng() % 9 == 0 ? (rng() % 2 == 0 ? 0.0f : -0.0f)
                                 : RoundToBf16(value(kLow[kind], kHigh[kind])));
  }
  // Rows span what encoding can give, 2^-31 to the large; rows that cancel others make sums that vanish.
  for (int i = 0; i < columns * dim; ++i) {
    const bool cancels = i >= dim && rng() % 4 == 0;
    c.rows.push_back(cancels          ? -c.rows[static_cast<size_t>(i - dim)]
                     : rng() % 7 == 0 ? 0.0f
                     : kind == 3      ? value(-31, 4)
                                      : value(-8, 4));
  }
  for (int h = 0; h < heads; ++h) c.sink.push_back(value(-4, 5));
  for (int i = 0; i < columns; ++i) c.ids.push_back(rng() % 6 == 0 ? -1 : i);
  return c;
}

void FillRow(const float* row, int dim, uint32_t* pairs) {
  for (int i = 0; i < dim; i += 2) {
    pairs[i / 2] = static_cast<uint32_t>(FloatToBf16(row[i])) << 16 | FloatToBf16(row[i + 1]);
  }
}

std::vector<float> RunTiles(const HardCase& c) {
  OnlineAttention attention;
  attention.Begin(c.q.data(), c.heads, c.dim, 1.0f / std::sqrt(static_cast<float>(c.dim)));
  for (size_t first = 0; first < c.ids.size(); first += kAttentionTileRows) {
    uint64_t live = 0;
    for (size_t i = first; i < std::min<size_t>(c.ids.size(), first + kAttentionTileRows); ++i) {
      const int r = static_cast<int>(i - first);
      // What an empty row holds must not matter.
      std::fill_n(attention.row(r), c.dim / 2, 0x7fc07fc0u);
      if (c.ids[i] < 0) continue;
      FillRow(&c.rows[static_cast<size_t>(c.ids[i]) * static_cast<size_t>(c.dim)], c.dim, attention.row(r));
      live |= uint64_t{1} << r;
    }
    attention.AddTile(live);
  }
  std::vector<float> out(c.q.size());
  attention.Finish(c.sink.data(), out.data());
  return out;
}

TEST(OnlineAttention, EqualsItsTwinOnHardValuesOnEveryIsa) {
  std::mt19937 rng(11);
  for (int kind = 0; kind < 4; ++kind) {
    for (auto [heads, dim, columns] :
         {std::tuple{1, 32, 1}, {3, 64, 67}, {16, 96, 130}, {65, 128, 63}, {64, 512, 200}}) {
      const HardCase c = MakeHardCase(kind, heads, dim, columns, rng);
      const std::vector<float> want =
          reference::TiledAttention(c.q.data(), c.rows.data(), c.sink.data(), c.ids, heads, dim);
      for (Isa isa : SupportedIsas()) {
        ScopedIsa forced(isa);
        const std::vector<float> got = RunTiles(c);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
            << IsaName(isa) << ", kind " << kind << ", " << heads << " heads of " << dim;
      }
    }
  }
}

TEST(OnlineAttention, IsReusedWithoutTracesOfWhatWasBefore) {
  std::mt19937 rng(12);
  const HardCase large = MakeHardCase(1, 32, 128, 190, rng), small = MakeHardCase(0, 5, 64, 70, rng);
  const auto run = [](const HardCase& c, OnlineAttention& attention) {
    attention.Begin(c.q.data(), c.heads, c.dim, 1.0f);
    FillRow(c.rows.data(), c.dim, attention.row(0));
    attention.AddTile(1);
    std::vector<float> out(c.q.size());
    attention.Finish(c.sink.data(), out.data());
    return out;
  };
  OnlineAttention used, fresh;
  run(large, used);
  EXPECT_EQ(run(small, used), run(small, fresh));
}

TEST(SparseAttention, HeadsApartGiveWhatTheyGiveTogether) {
  const Fixture f(64, 128);
  const std::vector<int32_t> selected = {3, 50, 99};
  const AttentionQuery query = f.Query(40, 70, selected);
  const std::vector<float> together = f.Run(40, 70, selected);
  for (const auto& [first, count] : {std::pair{0, 32}, {32, 32}, {48, 16}, {5, 3}}) {
    std::vector<float> apart(static_cast<size_t>(count) * 128);
    SparseAttention attention;
    attention.Run(query.of_heads(first, count), apart.data());
    EXPECT_TRUE(std::equal(apart.begin(), apart.end(), together.begin() + first * 128)) << first;
  }
}

TEST(SparseAttention, AnEmptyListGivesZeros) {
  const Fixture f(4, 64);
  for (float v : f.Run(70, 70, {})) EXPECT_EQ(v, 0.0f);
}

TEST(SparseAttention, TheSinkTakesItsShare) {
  Fixture f(4, 64);
  const std::vector<float> with = f.Run(79, 80, {});
  f.sink.assign(4, -1e30f);
  const std::vector<float> without = f.Run(79, 80, {});
  for (int c = 0; c < 64; ++c) {
    EXPECT_EQ(without[static_cast<size_t>(c)], f.decoded[static_cast<size_t>(79 * 64 + c)]);
    EXPECT_LE(std::fabs(with[static_cast<size_t>(c)]), std::fabs(without[static_cast<size_t>(c)]));
  }
}

}  // namespace
}  // namespace emberkv
