#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <thread>

#include "tokenizer/small_tokenizer_for_tests.h"
#include "tokenizer/utf8.h"

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer Parsed(const nlohmann::json& json) {
  Result<Tokenizer> tokenizer = Tokenizer::Parse(json.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

Tokenizer Small() { return Parsed(SmallTokenizerJson()); }

Tokenizer EmberTiny() {
  Result<Tokenizer> tokenizer = Tokenizer::Load(EMBERKV_SOURCE_DIR "/models/ember-tiny");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

nlohmann::json Added(int id, const char* content, bool is_normalized) {
  return {{"id", id}, {"content", content}, {"normalized", is_normalized}, {"special", false}};
}

TEST(Tokenizer, MergesInTheOrderOfTheList) {
  // "b c" stands before "a b", so that "abc" becomes a + bc, which no merge joins.
  EXPECT_THAT(*Small().Encode("abc ab"), ElementsAre('a', kIdBc, ' ', kIdAb));
}

TEST(Tokenizer, IgnoreMergesTakesTheWholeWord) {
  nlohmann::json json = SmallTokenizerJson();
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(*Parsed(json).Encode("abc"), ElementsAre(kIdAbc));
}

TEST(Tokenizer, BothSpellingsOfMergesMeanTheSame) {
  nlohmann::json json = SmallTokenizerJson();
  json["model"]["merges"] = nlohmann::json::parse(R"([["b","c"],["a","b"],["ab","c"]])");
  EXPECT_EQ(*Parsed(json).Encode("abcabab"), *Small().Encode("abcabab"));
}

TEST(Tokenizer, RecognisesAddedTokensInsideText) {
  EXPECT_THAT(*Small().Encode("x<end>y<en"), ElementsAre('x', kIdEnd, 'y', '<', 'e', 'n'));
}

TEST(Tokenizer, TakesTheLongestAddedTokenAtTheEarliestPlace) {
  nlohmann::json json = SmallTokenizerJson();
  json["added_tokens"].push_back(Added(260, "<end>!", false));
  json["added_tokens"].push_back(Added(261, "d>!?", false));
  EXPECT_THAT(*Parsed(json).Encode("<end>!?<end>?"), ElementsAre(260, '?', kIdEnd, '?'));
}

TEST(Tokenizer, LooksForNormalizedAddedTokensSecond) {
  nlohmann::json json = SmallTokenizerJson();
  json["added_tokens"].push_back(Added(260, "x<end", true));
  EXPECT_THAT(*Parsed(json).Encode("x<end>x<end"), ElementsAre('x', kIdEnd, 260));
}

TEST(Tokenizer, EncodesIllFormedBytesAsReplacementCharacters) {
  EXPECT_EQ(*Small().Encode("a\xE4\xB8z"), *Small().Encode("a\uFFFDz"));
}

TEST(Tokenizer, EmptyTextHasNoIds) { EXPECT_TRUE(Small().Encode("")->empty()); }

TEST(Tokenizer, DecodesWithAndWithoutSpecialTokens) {
  const Tokenizer small = Small();
  const std::vector<int32_t> ids = {kIdAb, kIdEnd, 'c', 100000, -1};
  EXPECT_EQ(small.Decode(ids), "ab<end>c") << "ids without a token add nothing";
  EXPECT_EQ(small.Decode(ids, /*skip_special=*/true), "abc");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer small = Small();
  EXPECT_EQ(small.vocab_size(), 260);
  EXPECT_EQ(small.TokenId("ab"), kIdAb);
  EXPECT_EQ(small.TokenId("\u0120"), ' ');
  EXPECT_EQ(small.TokenId("nonsense"), std::nullopt);
  EXPECT_EQ(small.TokenBytes(0xE4), "\xE4");
  EXPECT_EQ(small.TokenText(' '), "\u0120");
  EXPECT_TRUE(small.IsSpecial(kIdEnd));
  EXPECT_FALSE(small.IsSpecial('a'));
}

TEST(Tokenizer, ReturnsTheTextItWasGiven) {
  const Tokenizer tokenizer = EmberTiny();
  const std::string text =
      "The code for amber falcon is 482 913.\n\nGrüße, 世界 👩‍💻 \t<think>";
  EXPECT_EQ(tokenizer.Decode(*tokenizer.Encode(text)), text);
}

TEST(Tokenizer, ManyThreadsEncodeAtOnce) {
  const Tokenizer tokenizer = EmberTiny();
  std::string text;
  for (int i = 0; i < 500; ++i) text += "The code for amber falcon is " + std::to_string(i) + ". ";
  const std::vector<int32_t> expected = *tokenizer.Encode(text);
  std::vector<std::thread> threads;
  std::array<bool, 4> is_equal{};
  for (bool& out : is_equal) {
    threads.emplace_back([&] { out = *tokenizer.Encode(text) == expected; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(is_equal, ::testing::Each(true));
}

// Quadratic work would take many minutes here.
TEST(Tokenizer, EncodesMegabytesOfOneCharacter) {
  const Tokenizer tokenizer = EmberTiny();
  for (const char c : {'a', ' ', '\n', '7', '-', '\x01'}) {
    const std::string text(1 << 20, c);
    const Result<std::vector<int32_t>> ids = tokenizer.Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status().ToString();
    EXPECT_EQ(tokenizer.Decode(*ids), text);
  }
}

TEST(Tokenizer, LoadNamesTheFileInErrors) {
  const std::string missing = ::testing::TempDir() + "/emberkv_no_such_model";
  EXPECT_EQ(Tokenizer::Load(missing).status().code(), StatusCode::kNotFound);
  const std::string broken = ::testing::TempDir() + "/emberkv_broken_tokenizer.json";
  std::ofstream(broken) << "{";
  const Status status = Tokenizer::Load(broken).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(broken));
}

TEST(StreamDecoder, WaitsForTheEndOfACharacter) {
  StreamDecoder decoder(Small());
  EXPECT_EQ(decoder.Push(0xE4), "");
  EXPECT_EQ(decoder.Push(0xB8), "");
  EXPECT_EQ(decoder.Push(0xAD), "中");
  EXPECT_EQ(decoder.Push('x'), "x");
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push('y'), "\uFFFDy") << "no byte can complete it any more";
  EXPECT_EQ(decoder.Push(0xC3), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoder, SkipsSpecialTokensWhenAsked) {
  StreamDecoder decoder(Small(), /*skip_special=*/true);
  EXPECT_EQ(decoder.Push('a') + decoder.Push(kIdEnd) + decoder.Push('b'), "ab");
}

TEST(StreamDecoder, JoinedPiecesEqualDecodeForAnyIds) {
  const Tokenizer tokenizer = EmberTiny();
  std::mt19937 rng(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<int32_t> ids(40);
    // Most of the first 267 ids are single bytes, so that characters break in every way.
    for (int32_t& id : ids) id = static_cast<int32_t>(rng() % (round % 2 == 0 ? 270 : 2600));
    StreamDecoder decoder(tokenizer);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string piece = decoder.Push(id);
      ASSERT_TRUE(IsWellFormedUtf8(piece));
      joined += piece;
    }
    joined += decoder.Finish();
    ASSERT_EQ(joined, tokenizer.Decode(ids));
  }
}

}  // namespace
}  // namespace emberkv
