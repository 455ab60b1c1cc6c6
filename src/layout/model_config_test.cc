#include "layout/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace emberkv {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kData = EMBERKV_TEST_DATA;

Json Released() {
  std::ifstream file(kData + "/configs/released.json");
  return Json::parse(file);
}

// The message of the refusal, or "accepted".
std::string Refusal(const Json& json) {
  Result<ModelConfig> config = ParseModelConfig(json.dump());
  return config.ok() ? "accepted" : config.status().message();
}

TEST(ModelConfig, ReadsTheReleasedConfig) {
  Result<ModelConfig> config = LoadModelConfig(kData + "/configs/released.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->vocab_size, 129280);
  EXPECT_EQ(config->hidden_size, 5120);
  EXPECT_EQ(config->eos_token_id, 1);
  EXPECT_EQ(config->num_hidden_layers, 40);
  EXPECT_EQ(config->compress_ratios.size(), 40u);  // the three draft stages are cut off
  EXPECT_EQ(config->compress_ratios[19], 2);
  EXPECT_EQ(config->compress_ratios[20], 1);
  EXPECT_THAT(config->kv_source_layer_ids, ElementsAre(2, 8, 14, 20));
  EXPECT_THAT(config->engram_num_embeddings, ElementsAre(384006168, 384016682));
  EXPECT_EQ(config->rms_norm_eps, 1e-20);
  EXPECT_EQ(config->rope_scaling.factor, 16);
  EXPECT_EQ(config->rope_scaling.original_max_position_embeddings, 65536);
  EXPECT_EQ(config->max_position_embeddings, 1048576);
  EXPECT_EQ(config->num_nextn_predict_layers, 3);
}

TEST(ModelConfig, ReadsAFolder) {
  Result<ModelConfig> config = LoadModelConfig(kData + "/golden/tiny-wide");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->o_groups, 3);
  EXPECT_EQ(config->swiglu_limit, 7);
}

TEST(ModelConfig, NamesTheFileThatFails) {
  Result<ModelConfig> config = LoadModelConfig(kData + "/configs/absent.json");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(), HasSubstr("absent.json"));
}

TEST(ModelConfig, KeepsWideIntegersExact) {
  Json json = Released();
  const int64_t wide = (int64_t{1} << 40) - 1;  // not a float
  json["text_config"]["engram_num_embeddings"] = {wide, wide - 1};
  Result<ModelConfig> config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->engram_num_embeddings, ElementsAre(wide, wide - 1));
}

TEST(ModelConfig, IgnoresFieldsThatDoNotChangeTheTextModel) {
  Json json = Released();
  json["vision_config"] = nullptr;
  json["text_config"]["attention_dropout"] = 0.5;
  json["text_config"]["something_new"] = {1, 2};
  EXPECT_EQ(Refusal(json), "accepted");
}

TEST(ModelConfig, DraftStagesAndEngramMayBeAbsent) {
  Json json = Released();
  Json& text = json["text_config"];
  const Json released = Released();
  for (const auto& [name, value] : released["text_config"].items()) {
    if (name.starts_with("dspark_") || name.starts_with("engram_")) text.erase(name);
  }
  text.erase("num_nextn_predict_layers");
  text["engram_layer_ids"] = Json::array();
  ASSERT_FALSE(text.contains("engram_n_heads"));
  Result<ModelConfig> config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->num_nextn_predict_layers, 0);
  EXPECT_TRUE(config->engram_layer_ids.empty());
}

TEST(ModelConfig, EveryFieldThatIsReadIsRequired) {
  const std::vector<std::string> optional = {
      // known to have one meaning when absent
      "model_type", "attention_bias", "tie_word_embeddings", "num_nextn_predict_layers",
      // not read
      "attention_dropout", "initializer_range", "use_cache"};
  int required = 0;
  const Json released = Released();
  for (const auto& [name, value] : released["text_config"].items()) {
    if (name.starts_with("dspark_") || testing::Value(optional, testing::Contains(name))) continue;
    Json json = released;
    json["text_config"].erase(name);
    EXPECT_EQ(Refusal(json), "text_config." + name + " is missing");
    ++required;
  }
  EXPECT_EQ(required, 46);
  for (const char* name :
       {"model_type", "bos_token_id", "eos_token_id", "pad_token_id", "quantization_config"}) {
    Json json = released;
    json.erase(name);
    EXPECT_EQ(Refusal(json), std::string(name) + " is missing");
  }
}

TEST(ModelConfig, ExplainsTheFlatSpellings) {
  EXPECT_EQ(Refusal({{"dim", 5120}, {"n_layers", 40}}),
            "text_config is missing: this is inference/config.json; use the released config.json");
  EXPECT_THAT(Refusal(Released()["text_config"]), HasSubstr("at the top level"));
  EXPECT_EQ(Refusal(Json::object()), "text_config is missing");
}

TEST(ModelConfig, RefusesTextThatIsNotAConfig) {
  for (const char* text :
       {"", "{", "[]", "7", "{\"text_config\": 3}", "\"\xff\"", "{\"a\":1e999}"}) {
    Result<ModelConfig> config = ParseModelConfig(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(ParseModelConfig(std::string(5 << 20, ' ')).status().message(), HasSubstr("bytes"));
  EXPECT_FALSE(ParseModelConfig(std::string(1 << 20, '[')).ok());
}

struct Planted {
  const char* pointer;  // JSON pointer of the field
  Json value;
  std::vector<std::string> words;  // of the message: field, value, rule
};

const Planted kPlanted[] = {
    // one meaning only
    {"/model_type", "deepseek_v4", {"model_type is \"deepseek_v4\"", "\"deepseek_v41\""}},
    {"/text_config/attention_bias", true, {"text_config.attention_bias is true", "allowed: false"}},
    {"/text_config/tie_word_embeddings", true, {"tie_word_embeddings is true", "allowed: false"}},
    {"/text_config/hidden_act", "gelu", {"text_config.hidden_act is \"gelu\"", "\"silu\""}},
    {"/text_config/scoring_func", "sigmoid", {"scoring_func is \"sigmoid\"", "\"sqrtsoftplus\""}},
    {"/text_config/topk_method", "greedy", {"topk_method is \"greedy\"", "\"noaux_tc\""}},
    {"/text_config/norm_topk_prob", false, {"norm_topk_prob is false", "allowed: true"}},
    {"/text_config/num_key_value_heads", 8, {"num_key_value_heads is 8", "allowed: 1"}},
    {"/text_config/n_shared_experts", 2, {"text_config.n_shared_experts is 2", "1 to 1"}},
    {"/text_config/n_group", 8, {"text_config.n_group is 8", "allowed: 1"}},
    {"/text_config/rope_scaling/rope_type",
     "linear",
     {"rope_scaling.rope_type is \"linear\"", "\"yarn\""}},
    {"/text_config/rope_scaling/mscale", 1.0, {"rope_scaling.mscale is 1.0", "null"}},
    {"/quantization_config/quant_method",
     "awq",
     {"quantization_config.quant_method is \"awq\"", "\"fp8\""}},
    {"/quantization_config/weight_block_size",
     {128, 128},
     {"weight_block_size is [128,128]", "[32,32]"}},
    {"/quantization_config/scale_fmt", "float", {"scale_fmt is \"float\"", "\"ue8m0\""}},
    {"/quantization_config/expert_dtype", "fp8", {"expert_dtype is \"fp8\"", "\"fp4\""}},
    // types
    {"/text_config", "x", {"text_config is \"x\"", "an object"}},
    {"/text_config/hidden_size", 5120.0, {"text_config.hidden_size is 5120.0", "whole number"}},
    {"/text_config/hidden_size", -1, {"text_config.hidden_size is -1", "whole number"}},
    {"/text_config/hidden_size",
     1ULL << 63,
     {"hidden_size is 9223372036854775808", "whole number"}},
    {"/text_config/rope_theta",
     "10000",
     {"text_config.rope_theta is \"10000\"", "a finite number"}},
    {"/text_config/compress_ratios", 2, {"text_config.compress_ratios is 2", "a list"}},
    {"/text_config/compress_ratios/3",
     "2",
     {"text_config.compress_ratios[3] is \"2\"", "whole number"}},
    {"/eos_token_id", {1, 2}, {"eos_token_id is [1,2]", "whole number"}},
    {"/text_config/rope_scaling", nullptr, {"text_config.rope_scaling is null", "an object"}},
    // sizes that no row or weight format can pack
    {"/text_config/head_dim", 520, {"text_config.head_dim is 520", "multiple of 32"}},
    {"/text_config/index_head_dim", 100, {"text_config.index_head_dim is 100", "multiple of 32"}},
    {"/text_config/hidden_size", 5121, {"text_config.hidden_size is 5121", "multiple of 32"}},
    {"/text_config/moe_intermediate_size",
     2300,
     {"moe_intermediate_size is 2300", "multiple of 32"}},
    {"/text_config/q_lora_rank", 1290, {"text_config.q_lora_rank is 1290", "multiple of 32"}},
    {"/text_config/o_lora_rank", 1000, {"text_config.o_lora_rank is 1000", "multiple of 32"}},
    {"/text_config/engram_head_dim", 48, {"text_config.engram_head_dim is 48", "multiple of 32"}},
    // absurd sizes
    {"/text_config/num_hidden_layers",
     2000000000,
     {"num_hidden_layers is 2000000000", "1 to 1024"}},
    {"/text_config/num_hidden_layers", 0, {"num_hidden_layers is 0", "1 to 1024"}},
    {"/text_config/vocab_size", 2147483647, {"vocab_size is 2147483647", "2 to 16777216"}},
    {"/text_config/sliding_window", 0, {"text_config.sliding_window is 0", "1 to"}},
    {"/text_config/hc_mult", 1000, {"text_config.hc_mult is 1000", "1 to 16"}},
    {"/text_config/index_topk", 0, {"text_config.index_topk is 0", "1 to"}},
    {"/text_config/max_position_embeddings",
     1LL << 60,
     {"max_position_embeddings is 1152921504606846976"}},
    {"/text_config/engram_num_embeddings/1",
     1LL << 50,
     {"engram_num_embeddings[1] is 1125899906842624"}},
    {"/text_config/swiglu_limit", 0, {"text_config.swiglu_limit is 0", "above 0"}},
    {"/text_config/rms_norm_eps", -1e-6, {"text_config.rms_norm_eps is -1e-06", "at least 0"}},
    {"/text_config/rope_theta", 1e300, {"text_config.rope_theta is 1e+300", "fp32"}},
    {"/text_config/rope_scaling/beta_fast", 0.5, {"rope_scaling.beta_fast is 0.5", "at least 1"}},
    // sizes against each other
    {"/text_config/qk_rope_head_dim", 63, {"qk_rope_head_dim is 63", "even"}},
    {"/text_config/qk_rope_head_dim", 130, {"qk_rope_head_dim is 130", "2 to 128"}},
    {"/text_config/o_groups",
     7,
     {"text_config.o_groups is 7", "divisor of num_attention_heads, 64"}},
    {"/text_config/num_experts_per_tok",
     385,
     {"num_experts_per_tok is 385", "n_routed_experts, 384"}},
    {"/bos_token_id", 129280, {"bos_token_id is 129280", "0 to 129279"}},
    {"/text_config/engram_layer_ids", {14, 1}, {"engram_layer_ids[1] is 1", "ascending"}},
    {"/text_config/engram_layer_ids", {1, 40}, {"engram_layer_ids[1] is 40", "2 to 39"}},
    {"/text_config/engram_num_embeddings",
     {5},
     {"engram_num_embeddings has 1 entries", "each of the 2"}},
    {"/text_config/engram_compressed_vocab_size",
     129281,
     {"engram_compressed_vocab_size is 129281"}},
};

TEST(ModelConfig, RefusesByFieldValueAndRule) {
  for (const Planted& planted : kPlanted) {
    Json json = Released();
    json[Json::json_pointer(planted.pointer)] = planted.value;
    const std::string message = Refusal(json);
    for (const std::string& word : planted.words) EXPECT_THAT(message, HasSubstr(word));
  }
}

}  // namespace
}  // namespace emberkv
