#include "attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

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

  std::vector<float> Run(int64_t begin, int64_t end, const std::vector<int32_t>& selected) const {
    const uint8_t* pages[1] = {page.data()};
    AttentionQuery query{q.data(), heads, dim, sink.data(), kWindow,
                         {ring.data(), chunk.data(), 64, kWindow, window_bytes},
                         begin, end, {pages, 0, 100, global_bytes}, selected};
    std::vector<float> out(q.size());
    SparseAttention attention;
    attention.Run(query, out.data());
    return out;
  }
  std::vector<float> Exact(int64_t begin, int64_t end, const std::vector<int32_t>& selected) const {
    std::vector<int32_t> ids;
    for (int64_t p = begin; p < end; ++p) ids.push_back(static_cast<int32_t>(p));
    for (int32_t j : selected) ids.push_back(80 + j);
    return reference::Attention(q.data(), decoded.data(), sink.data(), ids, heads, dim);
  }
};

TEST(SparseAttention, IsCloseToExactSoftmaxAndTheSameOnEveryIsa) {
  std::vector<int32_t> many;
  for (int32_t j = 0; j < 100; j += 1 + j % 3) many.push_back(j);
  for (auto [heads, dim] : {std::pair{4, 64}, {6, 128}, {2, 512}}) {
    const Fixture f(heads, dim);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{48, 80}, {40, 70}, {79, 80}}) {
      for (const std::vector<int32_t>& selected : {std::vector<int32_t>{}, {5, 90}, many}) {
        const std::vector<float> want = f.Exact(begin, end, selected);
        const std::vector<float> got = f.Run(begin, end, selected);
        float top = 0;
        for (float v : want) top = std::max(top, std::fabs(v));
        for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 8e-3f * top);
        for (Isa isa : SupportedIsas()) {
          ScopedIsa forced(isa);
          const std::vector<float> again = f.Run(begin, end, selected);
          EXPECT_EQ(std::memcmp(again.data(), got.data(), got.size() * sizeof(float)), 0)
              << IsaName(isa);
        }
      }
    }
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
