// Ids that the Hugging Face `tokenizers` package gave (make_golden.py), without the package.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "hex.h"
#include "tokenizer/tokenizer.h"

namespace emberkv {
namespace {

TEST(TokenizerGolden, IdsEqualThoseOfHuggingFace) {
  const Result<std::string> text =
      ReadTextFile(EMBERKV_TEST_DATA "/tokenizer/golden_ids.json", 1 << 24);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const nlohmann::json golden = nlohmann::json::parse(*text);
  const auto texts = golden.at("texts_hex").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 200u);
  ASSERT_EQ(golden.at("ids").size(), 2u);
  for (const auto& [file, ids] : golden.at("ids").items()) {
    const Result<Tokenizer> tokenizer = Tokenizer::Load(EMBERKV_SOURCE_DIR "/" + file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    ASSERT_EQ(ids.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto encoded = tokenizer->Encode(FromHex(texts[i]));
      ASSERT_TRUE(encoded.ok()) << encoded.status().ToString();
      EXPECT_EQ(*encoded, ids[i].get<std::vector<int32_t>>()) << file << ", text " << texts[i];
    }
  }
}

}  // namespace
}  // namespace emberkv
