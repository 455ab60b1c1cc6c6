#include "tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/small_tokenizer_for_tests.h"

namespace emberkv {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(std::string_view json) {
  const auto tables = ParseTokenizerJson(json);
  EXPECT_FALSE(tables.ok()) << "accepted";
  if (tables.ok()) return "";
  EXPECT_EQ(tables.status().code(), StatusCode::kInvalidArgument);
  return tables.status().message();
}

TEST(TokenizerJson, AcceptsTheSmallTokenizer) {
  const auto tables = ParseTokenizerJson(SmallTokenizerJson().dump());
  ASSERT_TRUE(tables.ok()) << tables.status().ToString();
  EXPECT_EQ((*tables)->tokens.size(), 260u);
}

TEST(TokenizerJson, RefusesWhatIsNotJson) {
  EXPECT_THAT(MessageOf(""), HasSubstr("not JSON"));
  EXPECT_THAT(MessageOf("{\"model\": "), HasSubstr("line 1, column"));
  EXPECT_THAT(MessageOf("{\"version\": \"\xFF\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(MessageOf("[1]"), HasSubstr("the file is [1]; it must be an object"));
  const std::string text = SmallTokenizerJson().dump();
  EXPECT_THAT(MessageOf(std::string_view(text).substr(0, text.size() / 2)), HasSubstr("not JSON"));
}

// One change to the small tokenizer and what the refusal must say.
struct BadValue {
  const char* pointer;
  const char* value;
  const char* field;
  const char* shown;
};

class TokenizerJsonRefuses : public ::testing::TestWithParam<BadValue> {};

TEST_P(TokenizerJsonRefuses, NamingFieldAndValue) {
  nlohmann::json json = SmallTokenizerJson();
  json[nlohmann::json::json_pointer(GetParam().pointer)] = nlohmann::json::parse(GetParam().value);
  const std::string message = MessageOf(json.dump());
  EXPECT_THAT(message, HasSubstr(GetParam().field));
  EXPECT_THAT(message, HasSubstr(GetParam().shown));
}

constexpr char kSteps[] = "/pre_tokenizer/pretokenizers";

const BadValue kBadValues[] = {
    // ids
    {"/model/vocab/ab", "300", "model.vocab[\"ab\"] is 300", "ids 0 to 259"},
    {"/model/vocab/ab", "-1", "model.vocab[\"ab\"] is -1", "ids 0 to 259"},
    {"/model/vocab/ab", "18446744073709551615", "model.vocab[\"ab\"]", "18446744073709551615"},
    {"/model/vocab/ab", "4294967297", "model.vocab[\"ab\"]", "4294967297"},
    {"/model/vocab/ab", "1.5", "model.vocab[\"ab\"] is 1.5", "ids 0 to 259"},
    {"/model/vocab/ab", "\"7\"", "model.vocab[\"ab\"] is \"7\"", "ids 0 to 259"},
    {"/model/vocab/ab", "97", "is 97", "also the id of \"a"},
    {"/model/vocab", "[]", "model.vocab is []", "object"},
    {"/model/vocab", "{\"a\": 0}", "model.vocab has no \"\u0100\"", "byte 0"},
    {"/added_tokens/0/id", "97", "added_tokens[0].id is 97", "also the id of \"a\""},
    {"/added_tokens/0/id", "null", "added_tokens[0].id is null", "ids 0 to 259"},
    {"/added_tokens/0/content", "\"ab\"", "added_tokens[0].id is 259", "also has the id 256"},
    {"/added_tokens/0/content", "\"\"", "added_tokens[0].content is \"\"", "not empty"},
    {"/added_tokens/0/content", "7", "added_tokens[0].content is 7", "text"},
    // merges
    {"/model/merges/1", "\"a xyz\"", "model.merges[1] is \"a xyz\"", "has no \"xyz\""},
    {"/model/merges/1", "\"a c\"", "model.merges[1] is \"a c\"", "has no \"ac\""},
    {"/model/merges/1", "[\"<end>\", \"a\"]", "model.merges[1]", "has no \"<end>\""},
    {"/model/merges/1", "\"ab\"", "model.merges[1] is \"ab\"", "must be"},
    {"/model/merges/1", "\"a b c\"", "model.merges[1] is \"a b c\"", "must be"},
    {"/model/merges/1", "[\"a\"]", "model.merges[1] is [\"a\"]", "must be"},
    {"/model/merges/1", "[1, 2]", "model.merges[1] is [1,2]", "must be"},
    {"/model/merges", "{}", "model.merges", "must be a list"},
    // settings of the model
    {"/model/type", "\"WordPiece\"", "model.type is \"WordPiece\"", "\"BPE\""},
    {"/model/dropout", "0.1", "model.dropout is 0.1", "not supported"},
    {"/model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix is \"##\"",
     "not supported"},
    {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix is \"</w>\"",
     "not supported"},
    {"/model/ignore_merges", "\"yes\"", "model.ignore_merges is \"yes\"", "true or false"},
    {"/model/byte_fallback", "1", "model.byte_fallback is 1", "true or false"},
    {"/model/unk_token", "1", "model.unk_token is 1", "text"},
    {"/model/unknown", "1", "model.unknown is 1", "not known"},
    {"/model", "null", "model is null", "object"},
    // added tokens
    {"/added_tokens", "{}", "added_tokens is", "list"},
    {"/added_tokens/0", "3", "added_tokens[0] is 3", "object"},
    {"/added_tokens/0/lstrip", "true", "added_tokens[0].lstrip is true", "not supported"},
    {"/added_tokens/0/rstrip", "true", "added_tokens[0].rstrip is true", "not supported"},
    {"/added_tokens/0/single_word", "true", "added_tokens[0].single_word is true", "not supported"},
    {"/added_tokens/0/special", "1", "added_tokens[0].special is 1", "true or false"},
    {"/added_tokens/0/colour", "1", "added_tokens[0].colour is 1", "not known"},
    // pre-tokenizer
    {"/pre_tokenizer", "null", "pre_tokenizer is null", "object"},
    {"/pre_tokenizer/type", "\"Whitespace\"", "pre_tokenizer.type is \"Whitespace\"", "supported"},
    {kSteps, "[]", "pre_tokenizer.pretokenizers is []", "list of steps"},
    {"/pre_tokenizer/pretokenizers/0/type", "\"Digits\"", "pretokenizers[0].type is \"Digits\"",
     "\"Split\""},
    {"/pre_tokenizer/pretokenizers/1/type", "\"Split\"", "pretokenizers[1].type is \"Split\"",
     "\"ByteLevel\""},
    {"/pre_tokenizer/pretokenizers/1/use_regex", "0", "pretokenizers[1].use_regex is 0",
     "true or false"},
    {"/pre_tokenizer/pretokenizers/0/behavior", "\"MergedWithNext\"", "pretokenizers[0].behavior",
     "\"MergedWithNext\""},
    {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(\"",
     "pretokenizers[0].pattern.Regex is \"(\"", "parenthesis"},
    {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\w\"",
     "pretokenizers[0].pattern.Regex is", "\\w\" is not supported"},
    {"/pre_tokenizer/pretokenizers/0/pattern", "{\"String\": \" \"}", "pattern.String is \" \"",
     "not known"},
    // the rest
    {"/version", "\"2.0\"", "version is \"2.0\"", "not supported"},
    {"/truncation", "{\"max_length\": 5}", "truncation is an object", "not supported"},
    {"/padding", "true", "padding is true", "not supported"},
    {"/normalizer", "{\"type\": \"NFC\"}", "normalizer.type is \"NFC\"", "\"Sequence\""},
    {"/normalizer/normalizers", "[1]", "normalizer.normalizers is [1]", "not supported"},
    {"/post_processor", "{\"type\": \"TemplateProcessing\"}", "post_processor.type",
     "\"TemplateProcessing\""},
    {"/decoder", "null", "decoder is null", "object"},
    {"/decoder/type", "\"Metaspace\"", "decoder.type is \"Metaspace\"", "\"ByteLevel\""},
    {"/surprise", "[]", "surprise is []", "not known"},
};

INSTANTIATE_TEST_SUITE_P(Values, TokenizerJsonRefuses, ::testing::ValuesIn(kBadValues),
                         [](const auto& bad) { return std::to_string(bad.index); });

TEST(TokenizerJson, RefusesAGapInTheIds) {
  nlohmann::json json = SmallTokenizerJson();
  json["model"]["vocab"].erase("abc");
  json["model"]["merges"].erase(2);
  json["model"]["vocab"]["zz"] = 260;
  json["added_tokens"].push_back({{"id", 0}, {"content", AlphabetCharacter(0)}});
  EXPECT_THAT(MessageOf(json.dump()), HasSubstr("has the id 258; ids go up to 260"));
}

TEST(TokenizerJson, RefusesAnAddedTokenGivenTwice) {
  nlohmann::json json = SmallTokenizerJson();
  json["added_tokens"].push_back(json["added_tokens"][0]);
  EXPECT_THAT(MessageOf(json.dump()),
              HasSubstr("added_tokens[1].content is \"<end>\"; added_tokens[0]"));
}

TEST(TokenizerJson, AbsentSettingsHaveTheirDefaults) {
  nlohmann::json json = SmallTokenizerJson();
  for (const char* key : {"version", "truncation", "padding", "normalizer", "post_processor"})
    json.erase(key);
  for (const char* key : {"dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"}) {
    json["model"].erase(key);
  }
  EXPECT_TRUE(ParseTokenizerJson(json.dump()).ok());
}

}  // namespace
}  // namespace emberkv
