#include "tokenizer/token_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tokenizer/small_tokenizer_for_tests.h"

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

const char kEmberTiny[] = EMBERKV_SOURCE_DIR "/models/ember-tiny";

// A folder that may hold a token_map.json.
class ModelFolder {
 public:
  ModelFolder() {
    path_ = (std::filesystem::path(::testing::TempDir()) / "emberkv_token_map_test").string();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string Write(const std::string& text) const {
    const std::string file = path_ + "/token_map.json";
    std::ofstream(file) << text;
    return file;
  }

 private:
  std::string path_;
};

TEST(TokenMap, DerivingForEmberTinyGivesItsFile) {
  const Result<TokenMap> read = LoadTokenMap(std::string(kEmberTiny) + "/token_map.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const Result<TokenMap> derived = DeriveTokenMap(*Tokenizer::Load(kEmberTiny));
  ASSERT_TRUE(derived.ok()) << derived.status().ToString();
  EXPECT_THAT(derived->ids(), ElementsAreArray(read->ids()));
  EXPECT_EQ(derived->num_compressed(), 2430);
}

TEST(TokenMap, NormalisesLikeTheReference) {
  const auto key = [](std::string_view text) { return *NormalizeForEngram(text); };
  EXPECT_EQ(key(" The"), "the");
  EXPECT_EQ(key("ÉTÉ"), "ete");
  EXPECT_EQ(key("ﬁ①Ａ"), "fi1a") << "compatibility forms";
  EXPECT_EQ(key("ΑΣ"), "ασ") << "no final sigma";
  EXPECT_EQ(key("\uAC01"), "\u1100\u1161\u11A8") << "decomposed";
  EXPECT_EQ(key("का\u0903"), "क") << "spacing marks too";
  EXPECT_EQ(key("\u1CF2\U000111C9"), "\U000111C9") << "marks as of Unicode 9.0";
  EXPECT_EQ(key("a \t\r\n b"), "a b");
  EXPECT_EQ(key("\n\n"), " ") << "one space is kept";
  EXPECT_EQ(key("\u3000"), " ") << "NFKC makes it one space";
  EXPECT_EQ(key("\v\u2028x\u0085"), "x");
  EXPECT_EQ(key("\v"), "");
  EXPECT_EQ(key("\uE000"), " ") << "the sentinel of the published code";
  EXPECT_EQ(key("\u32FF"), "\u32FF") << "younger than Unicode 9.0: has no decomposition there";
}

TEST(TokenMap, TokensThatAreNoTextKeepApart) {
  const TokenMap map = *DeriveTokenMap(*Tokenizer::Parse(SmallTokenizerJson().dump()));
  EXPECT_EQ(map['A'], map['a']);
  EXPECT_EQ(map['\n'], map[' ']);
  EXPECT_NE(map[0xE4], map[0xE5]) << "both decode to U+FFFD";
  EXPECT_NE(map['\v'], map['\f']) << "normalised to nothing, they are their own keys";
}

TEST(TokenMap, CoversTheIdsItHas) {
  const TokenMap map = *TokenMap::FromIds({0, 1, 0});
  EXPECT_EQ(map.num_compressed(), 2);
  EXPECT_EQ(map[2], 0);
  EXPECT_TRUE(map.Contains(2));
  EXPECT_FALSE(map.Contains(3));
  EXPECT_FALSE(map.Contains(-1));
}

TEST(TokenMap, RefusesBrokenFiles) {
  const ModelFolder folder;
  const auto message = [&](const char* text) {
    const Result<TokenMap> map = LoadTokenMap(folder.Write(text));
    EXPECT_FALSE(map.ok()) << text;
    return map.status().message();
  };
  EXPECT_THAT(message("[0, 1"), HasSubstr("must be a JSON list"));
  EXPECT_THAT(message("{}"), HasSubstr("must be a JSON list"));
  EXPECT_THAT(message("[]"), HasSubstr("empty"));
  EXPECT_THAT(message("[0, \"1\"]"),
              HasSubstr("token 1 has no compressed id but a value of type string"));
  EXPECT_THAT(message("[0, 1.5]"), HasSubstr("token 1"));
  EXPECT_THAT(message("[0, -1]"), HasSubstr("token 1"));
  EXPECT_THAT(message("[0, 99999999999]"), HasSubstr("token 1"));
  EXPECT_THAT(message("[0, 5]"),
              HasSubstr("token 1 has the compressed id 5; 2 tokens allow 0 to 1"));
  EXPECT_THAT(message("[0, 2, 0]"), HasSubstr("no token has the compressed id 1"));
  EXPECT_EQ(LoadTokenMap(folder.path() + "/none.json").status().code(), StatusCode::kNotFound);
}

TEST(TokenMap, ForAModelTakesTheSidecarFirst) {
  const ModelFolder folder;
  folder.Write("[0, 1, 0]");
  const Result<TokenMap> map = TokenMapFor(folder.path(), nullptr, 4, 2);
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  EXPECT_THAT(map->ids(), ElementsAre(0, 1, 0));
}

TEST(TokenMap, ForAModelDerivesWithoutASidecar) {
  const ModelFolder folder;
  const Tokenizer tokenizer = *Tokenizer::Load(kEmberTiny);
  EXPECT_TRUE(TokenMapFor(folder.path(), &tokenizer, 2560, 2430).ok());
  EXPECT_EQ(TokenMapFor(folder.path(), nullptr, 2560, 2430).status().code(), StatusCode::kNotFound);
}

TEST(TokenMap, ForAModelRefusesOtherSizesWithTheNumbers) {
  const ModelFolder folder;
  const Tokenizer tokenizer = *Tokenizer::Load(kEmberTiny);
  const auto message = [&](const Tokenizer* t, int64_t vocab_size, int64_t count) {
    const Result<TokenMap> map = TokenMapFor(folder.path(), t, vocab_size, count);
    EXPECT_FALSE(map.ok());
    return map.status().message();
  };
  EXPECT_THAT(message(&tokenizer, 2560, 2431),
              HasSubstr("2430 distinct ids, but engram_compressed_vocab_size is 2431"));
  EXPECT_THAT(message(&tokenizer, 2559, 2430),
              HasSubstr("2560 tokens, more than the model's vocab_size of 2559"));
  folder.Write("[0, 1, 0]");
  EXPECT_THAT(message(&tokenizer, 2560, 2), HasSubstr("3 tokens, the tokenizer 2560"));
}

TEST(TokenMap, GoldenModelsHaveTheCountOfTheirConfig) {
  for (const auto& [name, vocab_size, count] :
       {std::tuple{"tiny-random", 512, 341}, {"tiny-wide", 640, 466}}) {
    const std::string folder = std::string(EMBERKV_TEST_DATA "/golden/") + name;
    const Result<TokenMap> map = TokenMapFor(folder, nullptr, vocab_size, count);
    EXPECT_TRUE(map.ok()) << map.status().ToString();
  }
}

}  // namespace
}  // namespace emberkv
