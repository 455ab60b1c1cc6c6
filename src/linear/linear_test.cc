#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/isa.h"
#include "formats/bf16.h"
#include "linear/dot_kernels.h"
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
    case WeightKind::kFp4:
      return PackedMatrix::FromFp4(rows, cols, bytes.data(), scales.data());
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

// Multiply on every instruction set, on one and on three threads, against the reference: equal
// bits.
void ExpectEqualsReference(const PackedMatrix& w, const std::vector<float>& x, size_t x_stride,
                           int m, const std::string& what) {
  static ThreadPool one(1);
  static ThreadPool three(3);
  const size_t y_stride = static_cast<size_t>(w.rows()) + 5;
  for (Rounding rounding : {Rounding::kNone, Rounding::kBf16}) {
    std::vector<float> want(static_cast<size_t>(m) * y_stride, -7.0f);
    MultiplyReference(w, x.data(), x_stride, m, want.data(), y_stride, rounding);
    for (Isa isa : SupportedIsas()) {
      ScopedIsa forced(isa);
      for (ThreadPool* pool : {&one, &three}) {
        std::vector<float> got(want.size(), -7.0f);
        Multiply(w, x.data(), x_stride, m, got.data(), y_stride, rounding, *pool);
        ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
            << IsaName(isa) << ", " << what << ", kind " << static_cast<int>(w.kind()) << ", "
            << w.rows() << " x " << w.cols() << ", m " << m;
      }
    }
  }
}

TEST(Multiply, EqualsTheReferenceBitForBitOnEveryIsaAndBatchSize) {
  std::mt19937 rng(1);
  for (WeightKind kind : kKinds) {
    for (auto [rows, cols] : {std::pair{24, 384}, {32, 32}, {96, 160}, {40, 224}, {131, 288}}) {
      const PackedMatrix w = RandomMatrix(kind, rows, cols, rng);
      for (int m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 130}) {
        const size_t x_stride = static_cast<size_t>(cols) + 3;
        ExpectEqualsReference(w, Bf16Values(static_cast<size_t>(m) * x_stride, rng), x_stride, m,
                              "normal");
      }
    }
  }
}

TEST(Multiply, TakesAnyNumberOfColumnsOfPlainValues) {
  std::mt19937 rng(3);
  for (WeightKind kind : {WeightKind::kBf16, WeightKind::kF32}) {
    for (int cols : {1, 31, 33, 50, 127}) {
      const PackedMatrix w = RandomMatrix(kind, 40, cols, rng);
      for (int m : {1, 8, 20}) {
        const size_t k = static_cast<size_t>(cols);
        ExpectEqualsReference(w, Bf16Values(static_cast<size_t>(m) * k, rng), k, m, "odd columns");
      }
    }
  }
}

// The dot instruction flushes what is below the normal range; no result may show it.
TEST(Multiply, KeepsTheBitsOfInputsAtTheEndsOfTheRange) {
  std::mt19937 rng(4);
  for (WeightKind kind : {WeightKind::kFp8, WeightKind::kFp4, WeightKind::kBf16}) {
    const PackedMatrix w = RandomMatrix(kind, 64, 128, rng);
    for (int exponent :
         {-133, -126, -120, -kInputRange - 1, -kInputRange, kInputRange, kInputRange + 1, 100}) {
      for (int m : {1, 8, 20}) {
        std::vector<float> x = Bf16Values(static_cast<size_t>(m) * 128, rng);
        for (float& v : x) v = rng() % 3 == 0 ? v : RoundToBf16(std::ldexp(v, exponent));
        ExpectEqualsReference(w, x, 128, m, "inputs times 2^" + std::to_string(exponent));
      }
    }
  }
}

TEST(Multiply, KeepsTheBitsOfExtremeWeights) {
  std::mt19937 rng(5);
  for (int exponent : {-130, -80, -kWeightRange - 2, 60, 100}) {
    std::vector<uint16_t> bits;
    for (float v : Bf16Values(64 * 96, rng)) bits.push_back(FloatToBf16(std::ldexp(v, exponent)));
    const PackedMatrix w =
        PackedMatrix::FromBf16(64, 96, reinterpret_cast<const uint8_t*>(bits.data()));
    for (int m : {1, 9}) {
      ExpectEqualsReference(w, Bf16Values(static_cast<size_t>(m) * 96, rng), 96, m,
                            "weights times 2^" + std::to_string(exponent));
    }
  }
}

TEST(Multiply, KeepsTheBitsUnderEveryScale) {
  std::mt19937 rng(6);
  const int rows = 64, cols = 256;
  const size_t n = size_t{64} * 256;
  std::vector<uint8_t> codes(n);
  for (uint8_t& c : codes) c = static_cast<uint8_t>(rng() % 127 + 128 * (rng() % 2));
  for (int first = 0; first < 255; first += 16) {
    std::vector<uint8_t> scales(n / 32);
    for (uint8_t& s : scales)
      s = static_cast<uint8_t>(std::min<uint64_t>(254, static_cast<uint64_t>(first) + rng() % 16));
    for (int m : {1, 8, 17}) {
      const std::vector<float> x = Bf16Values(static_cast<size_t>(m) * 256, rng);
      const std::string what = "scales from " + std::to_string(first);
      ExpectEqualsReference(PackedMatrix::FromFp8(rows, cols, codes.data(), scales.data()), x, 256,
                            m, what);
      ExpectEqualsReference(PackedMatrix::FromFp4(rows, cols, codes.data(), scales.data()), x, 256,
                            m, what);
    }
  }
}

// Sums that nearly cancel show the order of additions in every bit.
TEST(Multiply, KeepsTheOrderOfSumsThatCancel) {
  std::mt19937 rng(7);
  const int cols = 256;
  std::vector<uint8_t> codes(size_t{32} * 256), scales(8, 127);
  for (uint8_t& c : codes) c = static_cast<uint8_t>(rng() % 127);
  const PackedMatrix w = PackedMatrix::FromFp8(32, cols, codes.data(), scales.data());
  for (int m : {1, 2, 8, 16}) {
    std::vector<float> x(static_cast<size_t>(m) * 256);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = RoundToBf16(
          std::ldexp(1.0f + 0.01f * static_cast<float>(rng() % 100), static_cast<int>(i / 2 % 24)));
      if (i % 2 == 1) x[i] = -x[i - 1];
    }
    ExpectEqualsReference(w, x, 256, m, "cancelling");
  }
}

#if defined(__x86_64__)
TEST(DotKernels, TakeWhatIsInRangeAndRefuseTheRest) {
  if (SupportedIsas().back() != Isa::kAvx512Dot) GTEST_SKIP() << "no VDPBF16PS";
  const auto packs = [](float value) {
    std::vector<float> x(40, 1.0f);
    x[37] = value;
    std::vector<uint32_t> packed(32);
    return avx512dot::kDotKernels.pack(x.data(), 40, 1, 40, 16, packed.data());
  };
  for (float sign : {1.0f, -1.0f}) {
    EXPECT_TRUE(packs(sign * 0.0f));
    EXPECT_TRUE(packs(sign * std::ldexp(1.0f, -kInputRange)));
    EXPECT_TRUE(packs(sign * std::ldexp(1.5f, kInputRange)));
    EXPECT_FALSE(packs(sign * std::ldexp(1.5f, -kInputRange - 1)));
    EXPECT_FALSE(packs(sign * std::ldexp(1.0f, kInputRange + 1)));
    EXPECT_FALSE(packs(sign * 0x1p-130f));
    EXPECT_FALSE(packs(sign * INFINITY));
  }
  EXPECT_FALSE(packs(NAN));
}
#endif

TEST(Multiply, StaysCloseToADoublePrecisionSum) {
  std::mt19937 rng(2);
  const int rows = 64, cols = 4096;
  const size_t k = static_cast<size_t>(cols);
  const std::vector<float> values = Bf16Values(static_cast<size_t>(rows) * k, rng);
  std::vector<uint16_t> bits;
  for (float v : values) bits.push_back(FloatToBf16(v));
  const PackedMatrix w =
      PackedMatrix::FromBf16(rows, cols, reinterpret_cast<const uint8_t*>(bits.data()));
  const std::vector<float> x = Bf16Values(k, rng);
  std::vector<float> y(static_cast<size_t>(rows));
  MultiplyHere(w, x.data(), x.size(), 1, y.data(), y.size(), Rounding::kNone);
  for (size_t i = 0; i < y.size(); ++i) {
    double sum = 0, magnitude = 0;
    for (size_t j = 0; j < k; ++j) {
      const double product = double{x[j]} * values[i * k + j];
      sum += product;
      magnitude += std::fabs(product);
    }
    EXPECT_NEAR(y[i], sum, 1e-6 * magnitude);
  }
}

}  // namespace
}  // namespace emberkv
