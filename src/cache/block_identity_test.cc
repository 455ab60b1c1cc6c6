#include "cache/block_identity.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace emberkv {
namespace {

const Digest kRoot = Sha256("root");

TEST(ChainBlocks, ChainsTheFullBlocks) {
  std::vector<int32_t> tokens(11);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto chain = ChainBlocks(kRoot, {}, tokens, 4);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_EQ(chain[0].parent, kRoot);
  EXPECT_EQ(chain[1].parent, chain[0].hash);
  for (size_t i = 0; i < chain.size(); ++i) {
    EXPECT_EQ(chain[i].tokens.data(), tokens.data() + 4 * i);
    EXPECT_EQ(chain[i].hash, HashBlock(chain[i].parent, {}, chain[i].tokens));
  }
  EXPECT_TRUE(ChainBlocks(kRoot, {}, std::span(tokens).first(3), 4).empty());
}

TEST(ChainBlocks, CarriesTheProvenanceInEveryHash) {
  const std::vector<int32_t> tokens(8, 7);
  const auto canonical = ChainBlocks(kRoot, {}, tokens, 4);
  const auto replayed = ChainBlocks(kRoot, {128}, tokens, 4);
  EXPECT_NE(canonical[0].hash, replayed[0].hash);
  EXPECT_NE(canonical[1].hash, replayed[1].hash);
  EXPECT_EQ(replayed[1].provenance, Provenance{128});
}

TEST(ChainBlocks, Case_B02_ADivergingTokenChangesItsBlockAndThoseAfterOnly) {
  std::vector<int32_t> tokens(12, 1);
  std::vector<int32_t> diverging = tokens;
  diverging[7] = 2;
  const auto a = ChainBlocks(kRoot, {}, tokens, 4);
  const auto b = ChainBlocks(kRoot, {}, diverging, 4);
  EXPECT_EQ(a[0].hash, b[0].hash);
  EXPECT_NE(a[1].hash, b[1].hash);
  EXPECT_NE(a[2].hash, b[2].hash);
}

}  // namespace
}  // namespace emberkv
