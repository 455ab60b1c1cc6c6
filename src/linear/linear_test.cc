#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/isa.h"
#include "formats/bf16.h"
#include "linear/multiply.h"

namespace emberkv {
namespace {

std::vector<float> Bf16Values(size_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = RoundToBf16(normal(rng));
  return x;
}

// Random weights of a kind, every code but NaN, scales over a few binades and the extremes of e8m0.
PackedMatrix RandomMatrix(WeightKind kind, int rows, int cols, std::mt19937& rng) {
  const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  std::vector<uint8_t> bytes(n * 4);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  std::vector<uint8_t> scales(n / 32 + static_cast<size_t>(cols) / 32);
  for (uint8_t& s : scales) s = rng() % 50 == 0 ? 0 : static_cast<uint8_t>(118 + rng() % 8);
  switch (kind) {
    case WeightKind::kFp8:
      for (uint8_t& b : bytes) b = (b & 0x7f) == 0x7f ? 0x7e : b;
      return PackedMatrix::FromFp8(rows, cols, bytes.data(), scales.data());
    case WeightKind::kFp4: return PackedMatrix::FromFp4(rows, cols, bytes.data(), scales.data());
    case WeightKind::kBf16: {
      const std::vector<float> values = Bf16Values(n, rng);
      for (size_t i = 0; i < n; ++i) {
        const uint16_t b = FloatToBf16(values[i]);
        std::memcpy(bytes.data() + 2 * i, &b, 2);
      }
      return PackedMatrix::FromBf16(rows, cols, bytes.data());
    }
    case WeightKind::kF32: {
      std::normal_distribution<float> normal;
      for (size_t i = 0; i < n; ++i) {
        const float v = normal(rng);
        std::memcpy(bytes.data() + 4 * i, &v, 4);
      }
      return PackedMatrix::FromF32(rows, cols, bytes.data());
    }
  }
  return {};
}

constexpr WeightKind kKinds[] = {WeightKind::kFp8, WeightKind::kFp4, WeightKind::kBf16,
                                 WeightKind::kF32};

TEST(Multiply, EqualsTheReferenceBitForBitOnEveryIsaAndBatchSize) {
  std::mt19937 rng(1);
  ThreadPool one(1);
  ThreadPool three(3);
  for (WeightKind kind : kKinds) {
    for (auto [rows, cols] : {std::pair{24, 384}, {32, 32}, {96, 160}, {131, 288}}) {
      const PackedMatrix w = RandomMatrix(kind, rows, cols, rng);
      for (int m : {1, 3, 4, 9, 130}) {
        const size_t x_stride = static_cast<size_t>(cols) + 3;
        const size_t y_stride = static_cast<size_t>(rows) + 5;
        const std::vector<float> x = Bf16Values(static_cast<size_t>(m) * x_stride, rng);
        for (Rounding rounding : {Rounding::kNone, Rounding::kBf16}) {
          std::vector<float> want(static_cast<size_t>(m) * y_stride, -7.0f);
          MultiplyReference(w, x.data(), x_stride, m, want.data(), y_stride, rounding);
          for (Isa isa : SupportedIsas()) {
            ScopedIsa forced(isa);
            for (ThreadPool* pool : {&one, &three}) {
              std::vector<float> got(want.size(), -7.0f);
              Multiply(w, x.data(), x_stride, m, got.data(), y_stride, rounding, *pool);
              ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
                  << IsaName(isa) << " kind " << static_cast<int>(kind) << " " << rows << "x" << cols
                  << " m " << m;
            }
          }
        }
      }
    }
  }
}

TEST(Multiply, StaysCloseToADoublePrecisionSum) {
  std::mt19937 rng(2);
  const int rows = 64, cols = 4096;
  const PackedMatrix w = RandomMatrix(WeightKind::kBf16, rows, cols, rng);
  const std::vector<float> x = Bf16Values(static_cast<size_t>(cols), rng);
  std::vector<float> y(static_cast<size_t>(rows));
  MultiplyHere(w, x.data(), x.size(), 1, y.data(), y.size(), Rounding::kNone);
  for (int i = 0; i < rows; ++i) {
    double sum = 0, magnitude = 0;
    for (int k = 0; k < cols; ++k) {
      uint16_t bits;
      std::memcpy(&bits, w.panel_data(i / 32) + (static_cast<size_t>(k) * 32 + i % 32) * 2, 2);
      const double product = double{x[static_cast<size_t>(k)]} * Bf16ToFloat(bits);
      sum += product;
      magnitude += std::fabs(product);
    }
    EXPECT_NEAR(y[static_cast<size_t>(i)], sum, 1e-6 * magnitude);
  }
}

}  // namespace
}  // namespace emberkv
