#include "attention/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "formats/bf16.h"

namespace emberkv {
namespace {

TEST(Rope, InverseUndoesForwardUpToRounding) {
  const RopeTable table(64, 160000, RopeScaling{16, 32, 1, 65536});
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> angles(64);
  for (int64_t pos : {0, 1, 127, 65535, 1048575}) {
    table.CosSin(pos, angles.data());
    std::vector<float> x(64);
    for (float& v : x) v = RoundToBf16(normal(rng));
    std::vector<float> y = x;
    Rotate(y.data(), angles.data(), 64, Rotation::kForward);
    if (pos > 0) {
      EXPECT_NE(x, y);
    }
    Rotate(y.data(), angles.data(), 64, Rotation::kInverse);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 0.03f) << pos;
  }
}

TEST(Rope, YarnKeepsFastFrequenciesAndDividesSlowOnes) {
  const RopeTable plain(64, 160000, std::nullopt);
  const RopeTable yarn(64, 160000, RopeScaling{16, 32, 1, 65536});
  // numerics 5: low = 15, high = 25.
  EXPECT_EQ(yarn.inv_freq()[15], plain.inv_freq()[15]);
  EXPECT_NE(yarn.inv_freq()[16], plain.inv_freq()[16]);
  EXPECT_EQ(yarn.inv_freq()[25], plain.inv_freq()[25] / 16);
  EXPECT_EQ(yarn.inv_freq()[31], plain.inv_freq()[31] / 16);
}

TEST(Rope, AngleIsTheFp32Product) {
  const RopeTable table(16, 10000, std::nullopt);
  std::vector<float> angles(16);
  table.CosSin(1048575, angles.data());
  const float angle = 1048575.0f * table.inv_freq()[1];
  EXPECT_EQ(angles[1], static_cast<float>(std::cos(static_cast<double>(angle))));
  EXPECT_EQ(angles[9], static_cast<float>(std::sin(static_cast<double>(angle))));
}

}  // namespace
}  // namespace emberkv
