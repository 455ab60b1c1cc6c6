#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/cache_tools.h"
#include "cli/model_options.h"
#include "cli/small_store_for_tests.h"

namespace emberkv {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kModel = EMBERKV_SOURCE_DIR "/models/ember-tiny";
constexpr size_t kBlock = 128;

// Ember-tiny and a text of some blocks.
class CacheExplain : public SmallStore {
 protected:
  CacheExplain() : model_(*PrefixProbe::Open(kModel)) {
    for (int i = 0; i < 400; ++i)
      text_ += i % 7 == 3 ? " kettle" : i % 5 == 1 ? " bronze" : " horse";
    tokens_ = *EncodeFirst(model_, text_);
  }

  std::span<const int32_t> Block(size_t i) const {
    return std::span<const int32_t>(tokens_).subspan(i * kBlock, kBlock);
  }
  size_t num_blocks() const { return (tokens_.size() - 1) / kBlock; }

  // Stores the first `count` blocks as a cold run would.
  std::vector<BlockHash> PutText(size_t count) {
    std::vector<BlockHash> keys = {model_.key_root()};
    for (size_t i = 0; i < count; ++i) keys.push_back(Put(keys.back(), {}, Block(i)));
    return keys;
  }

  json Explain(ReplayMode replay = ReplayMode::kBounded) const {
    const auto text = ExplainText(*store_, model_, text_, {replay, true});
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    return json::parse(*text);
  }

  const PrefixProbe model_;
  std::string text_;
  std::vector<int32_t> tokens_;
};

TEST_F(CacheExplain, EverythingIsThere) {
  ASSERT_GE(num_blocks(), 3u);
  PutText(num_blocks());
  const json why = Explain();
  EXPECT_EQ(why["miss_reason"], "none");
  EXPECT_EQ(why["hit_tokens"], num_blocks() * kBlock);
  EXPECT_EQ(why["replayed_tokens"], model_.config().sliding_window);
  EXPECT_EQ(why["computed_tokens"], tokens_.size() - num_blocks() * kBlock);
  EXPECT_EQ(why["provenance"], "replayed@" + std::to_string(num_blocks() * kBlock));
  EXPECT_EQ(why["blocks"].size(), num_blocks());
  EXPECT_EQ(why["blocks"][0]["where"], "store");
}

TEST_F(CacheExplain, NothingWasEverSeen) {
  const json why = Explain();
  EXPECT_EQ(why["miss_reason"], "never seen");
  EXPECT_EQ(why["hit_tokens"], 0);
  EXPECT_EQ(why["replayed_tokens"], 0);
  EXPECT_EQ(why["blocks"][0]["where"], "missing");
  EXPECT_FALSE(why["blocks"][0].contains("provenance"));
}

TEST_F(CacheExplain, ADivergingPromptIsToldWhere) {
  const std::vector<BlockHash> keys = PutText(1);
  std::vector<int32_t> far(Block(1).begin(), Block(1).end()), near = far;
  far[3] ^= 1;
  near[100] ^= 1;
  Put(keys.back(), {}, far);
  Put(keys.back(), {}, near);
  const json why = Explain();
  EXPECT_EQ(why["miss_reason"], "diverges");
  EXPECT_EQ(why["hit_tokens"], kBlock);
  EXPECT_EQ(why["diverges_at_token"], kBlock + 100);
  const std::string there = model_.Decode(Block(1).subspan(100, 1));
  EXPECT_THAT(why["why"].get<std::string>(), HasSubstr("the prompt has \"" + there));
}

TEST_F(CacheExplain, PagesOfAnotherModelAreAnotherIdentity) {
  Put(Sha256("another model"), {}, Block(0));
  EXPECT_EQ(Explain()["miss_reason"], "other identity");
}

TEST_F(CacheExplain, AHoleIsToldFromTheBlocksBehindIt) {
  const std::vector<BlockHash> keys = PutText(1);
  const BlockHash hole = HashBlock(keys[1], {}, Block(1));
  Put(hole, {}, Block(2));
  const json why = Explain();
  EXPECT_EQ(why["miss_reason"], "lost");
  EXPECT_EQ(why["hit_tokens"], kBlock);
  EXPECT_EQ(why["blocks"][1]["where"], "missing");
  EXPECT_EQ(why["blocks"][2]["where"], "store, unreachable");
}

TEST_F(CacheExplain, ReplayedPagesCountForBoundedReplayOnly) {
  const std::vector<BlockHash> keys = PutText(1);
  const BlockHash replayed = Put(keys.back(), {kBlock}, Block(1));
  Put(replayed, {kBlock}, Block(2));
  EXPECT_EQ(Explain()["hit_tokens"], 3 * kBlock);
  EXPECT_EQ(Explain()["blocks"][2]["provenance"], "replayed@128");
  const json exact = Explain(ReplayMode::kExact);
  EXPECT_EQ(exact["hit_tokens"], kBlock);
  EXPECT_EQ(exact["miss_reason"], "other identity");
  EXPECT_EQ(exact["provenance"], "canonical");
  EXPECT_EQ(Explain(ReplayMode::kFull)["hit_tokens"], 0);
}

TEST_F(CacheExplain, ExtendsNoDeadline) {
  PutText(num_blocks());
  clock_.Advance(3'600'000'000);
  const auto before = DescribeStore(*store_, true);
  Explain();
  EXPECT_EQ(*DescribeStore(*store_, true), *before);
}

TEST_F(CacheExplain, ShortPromptsHaveNothingToReuse) {
  const auto text = ExplainText(*store_, model_, "bronze", {ReplayMode::kBounded, false});
  EXPECT_THAT(*text, HasSubstr("no full block of 128 tokens"));
}

TEST_F(CacheExplain, RunsOfEqualBlocksAreOneLine) {
  PutText(2);
  const auto text = ExplainText(*store_, model_, text_, {ReplayMode::kBounded, false});
  EXPECT_THAT(*text, HasSubstr("0 to 1"));
  EXPECT_THAT(*text, HasSubstr("0 to 255"));
  EXPECT_THAT(*text, HasSubstr("256 to"));
}

}  // namespace
}  // namespace emberkv
