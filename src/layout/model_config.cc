#include "layout/model_config.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "fmt/format.h"

namespace emberkv {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxConfigBytes = 4 << 20;

// A JSON value for a message: short, and never throwing on odd bytes.
std::string Show(const Json& value) {
  constexpr size_t kMaxChars = 80;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxChars) text = text.substr(0, kMaxChars) + "...";
  return text;
}

// Reads the fields of one JSON object, keeping the first failure, so that a list of fields reads as
// a list. After a failure every read is a no-op.
class FieldReader {
 public:
  // `prefix` is "" or "text_config." and appears in messages only.
  FieldReader(const Json& object, std::string prefix, Status* status)
      : object_(object), prefix_(std::move(prefix)), status_(*status) {}

  bool Has(const char* name) const {
    auto it = object_.find(name);
    return it != object_.end() && !it->is_null();
  }

  void Read(const char* name, int* out) {
    int64_t wide = 0;
    if (ReadInteger(Find(name), name, std::numeric_limits<int>::max(), &wide)) {
      *out = static_cast<int>(wide);
    }
  }

  void Read(const char* name, int64_t* out) {
    ReadInteger(Find(name), name, std::numeric_limits<int64_t>::max(), out);
  }

  void Read(const char* name, double* out) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_number() || !std::isfinite(value->get<double>())) {
      return Fail(name, *value, "a finite number");
    }
    *out = value->get<double>();
  }

  void Read(const char* name, bool* out) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Fail(name, *value, "true or false");
    *out = value->get<bool>();
  }

  void Read(const char* name, std::vector<int>* out) {
    ReadList(name, std::numeric_limits<int>::max(), out);
  }
  void Read(const char* name, std::vector<int64_t>* out) {
    ReadList(name, std::numeric_limits<int64_t>::max(), out);
  }

  const Json* ReadObject(const char* name) {
    const Json* value = Find(name);
    if (value != nullptr && !value->is_object()) {
      Fail(name, *value, "an object");
      return nullptr;
    }
    return value;
  }

  // Fields with one meaning that is built: any other value is refused rather than ignored.
  void Expect(const char* name, const Json& only) {
    const Json* value = Find(name);
    if (value != nullptr && *value != only) Fail(name, *value, Show(only));
  }
  void ExpectIfPresent(const char* name, const Json& only) {
    if (Has(name)) Expect(name, only);
  }

 private:
  const Json* Find(const char* name) {
    if (!status_.ok()) return nullptr;
    auto it = object_.find(name);
    if (it != object_.end()) return &*it;
    status_ = InvalidArgument(fmt::format("{}{} is missing", prefix_, name));
    return nullptr;
  }

  bool ReadInteger(const Json* value, std::string_view name, int64_t max, int64_t* out) {
    if (value == nullptr) return false;
    const bool fits = value->is_number_unsigned()
                          ? value->get<uint64_t>() <= static_cast<uint64_t>(max)
                          : value->is_number_integer() && value->get<int64_t>() >= 0;
    if (!fits) {
      Fail(name, *value, fmt::format("a whole number from 0 to {}", max));
      return false;
    }
    *out = value->get<int64_t>();
    return true;
  }

  template <typename T>
  void ReadList(const char* name, int64_t max, std::vector<T>* out) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return Fail(name, *value, "a list of whole numbers");
    out->clear();
    for (size_t i = 0; i < value->size(); ++i) {
      int64_t wide = 0;
      if (!ReadInteger(&(*value)[i], fmt::format("{}[{}]", name, i), max, &wide)) return;
      out->push_back(static_cast<T>(wide));
    }
  }

  void Fail(std::string_view name, const Json& found, std::string_view allowed) {
    if (!status_.ok()) return;
    status_ = InvalidArgument(
        fmt::format("{}{} is {}; allowed: {}", prefix_, name, Show(found), allowed));
  }

  const Json& object_;
  std::string prefix_;
  Status& status_;
};

// Values that other DeepSeek models give another meaning. What is not listed here or read below
// does not change what the text model computes (dropout, initialisation, vision).
void ExpectKnownModel(FieldReader& text) {
  text.ExpectIfPresent("model_type", "deepseek_v41_text");
  text.Expect("num_key_value_heads", 1);
  text.Expect("hidden_act", "silu");
  text.Expect("scoring_func", "sqrtsoftplus");
  text.Expect("topk_method", "noaux_tc");
  text.Expect("norm_topk_prob", true);
  text.ExpectIfPresent("attention_bias", false);
  text.ExpectIfPresent("mlp_bias", false);
  text.ExpectIfPresent("tie_word_embeddings", false);
  text.ExpectIfPresent("n_group", 1);
  text.ExpectIfPresent("topk_group", 1);
  text.ExpectIfPresent("first_k_dense_replace", 0);
  text.ExpectIfPresent("moe_layer_freq", 1);
  text.ExpectIfPresent("num_hash_layers", 0);
  text.ExpectIfPresent("gate_temp", 1);
}

void ExpectKnownQuantization(const Json& object, Status* status) {
  FieldReader reader(object, "quantization_config.", status);
  reader.Expect("quant_method", "fp8");
  reader.Expect("weight_block_size", Json::array({32, 32}));
  reader.Expect("scale_fmt", "ue8m0");
  reader.Expect("expert_dtype", "fp4");
  reader.ExpectIfPresent("activation_scheme", "dynamic");
}

void ReadRopeScaling(const Json& object, RopeScaling* out, Status* status) {
  FieldReader reader(object, "text_config.rope_scaling.", status);
  reader.Expect("rope_type", "yarn");
  reader.Read("factor", &out->factor);
  reader.Read("beta_fast", &out->beta_fast);
  reader.Read("beta_slow", &out->beta_slow);
  reader.Read("original_max_position_embeddings", &out->original_max_position_embeddings);
  // Other models scale the softmax by these; this one does not (numerics 5).
  for (const char* name : {"mscale", "mscale_all_dim", "attention_factor"}) {
    reader.ExpectIfPresent(name, Json());
  }
}

void ReadEngram(FieldReader& text, ModelConfig* c) {
  text.Read("engram_layer_ids", &c->engram_layer_ids);
  if (c->engram_layer_ids.empty()) return;
  text.Read("engram_num_embeddings", &c->engram_num_embeddings);
  text.Read("engram_max_ngram_size", &c->engram_max_ngram_size);
  text.Read("engram_vocab_size", &c->engram_vocab_size);
  text.Read("engram_n_heads", &c->engram_n_heads);
  text.Read("engram_head_dim", &c->engram_head_dim);
  text.Read("engram_pad_token_id", &c->engram_pad_token_id);
  text.Read("engram_compressed_vocab_size", &c->engram_compressed_vocab_size);
}

void ReadTextConfig(FieldReader& text, ModelConfig* c, Status* status) {
  text.Read("vocab_size", &c->vocab_size);
  text.Read("hidden_size", &c->hidden_size);
  text.Read("moe_intermediate_size", &c->moe_intermediate_size);
  text.Read("num_hidden_layers", &c->num_hidden_layers);
  text.Read("num_attention_heads", &c->num_attention_heads);
  text.Read("head_dim", &c->head_dim);
  text.Read("qk_rope_head_dim", &c->qk_rope_head_dim);
  text.Read("q_lora_rank", &c->q_lora_rank);
  text.Read("o_lora_rank", &c->o_lora_rank);
  text.Read("o_groups", &c->o_groups);
  text.Read("rms_norm_eps", &c->rms_norm_eps);
  text.Read("swiglu_limit", &c->swiglu_limit);
  text.Read("max_position_embeddings", &c->max_position_embeddings);
  text.Read("rope_theta", &c->rope_theta);
  text.Read("compress_rope_theta", &c->compress_rope_theta);
  if (const Json* rope = text.ReadObject("rope_scaling")) {
    ReadRopeScaling(*rope, &c->rope_scaling, status);
  }
  text.Read("n_routed_experts", &c->n_routed_experts);
  text.Read("n_shared_experts", &c->n_shared_experts);
  text.Read("num_experts_per_tok", &c->num_experts_per_tok);
  text.Read("norm_topk_prob", &c->norm_topk_prob);
  text.Read("routed_scaling_factor", &c->routed_scaling_factor);
  text.Read("sliding_window", &c->sliding_window);
  text.Read("compress_ratios", &c->compress_ratios);
  text.Read("kv_source_layer_ids", &c->kv_source_layer_ids);
  text.Read("index_source_layer_ids", &c->index_source_layer_ids);
  text.Read("index_n_heads", &c->index_n_heads);
  text.Read("index_head_dim", &c->index_head_dim);
  text.Read("index_topk", &c->index_topk);
  text.Read("candidate_source_layer_id", &c->candidate_source_layer_id);
  text.Read("candidate_topk_blocks", &c->candidate_topk_blocks);
  text.Read("candidate_block_size", &c->candidate_block_size);
  text.Read("hc_mult", &c->hc_mult);
  text.Read("hc_sinkhorn_iters", &c->hc_sinkhorn_iters);
  text.Read("hc_eps", &c->hc_eps);
  ReadEngram(text, c);
  if (text.Has("num_nextn_predict_layers")) {
    text.Read("num_nextn_predict_layers", &c->num_nextn_predict_layers);
  }
}

Status ExplainMissingTextConfig(const Json& root) {
  if (root.contains("n_layers") && root.contains("dim")) {
    return InvalidArgument(
        "text_config is missing: this is inference/config.json; use the released config.json");
  }
  if (root.contains("num_hidden_layers")) {
    return InvalidArgument(
        "text_config is missing: the text model's fields stand at the top level; allowed: the "
        "released config.json, which has them under text_config");
  }
  return InvalidArgument("text_config is missing");
}

Result<ModelConfig> FromJson(const Json& root) {
  if (!root.is_object()) {
    return InvalidArgument(fmt::format("config.json is {}; allowed: an object", Show(root)));
  }
  if (!root.contains("text_config")) return ExplainMissingTextConfig(root);

  ModelConfig config;
  Status status;
  FieldReader top(root, "", &status);
  top.Expect("model_type", "deepseek_v41");
  top.ExpectIfPresent("tie_word_embeddings", false);
  top.Read("bos_token_id", &config.bos_token_id);
  top.Read("eos_token_id", &config.eos_token_id);
  top.Read("pad_token_id", &config.pad_token_id);
  if (const Json* quantization = top.ReadObject("quantization_config")) {
    ExpectKnownQuantization(*quantization, &status);
  }
  if (const Json* object = top.ReadObject("text_config")) {
    FieldReader text(*object, "text_config.", &status);
    ExpectKnownModel(text);
    ReadTextConfig(text, &config, &status);
  }
  EMBERKV_RETURN_IF_ERROR(status);

  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  if (config.compress_ratios.size() > layers) config.compress_ratios.resize(layers);
  EMBERKV_RETURN_IF_ERROR(CheckModelConfig(config));
  return config;
}

}  // namespace

Result<ModelConfig> ParseModelConfig(std::string_view json) {
  if (json.size() > kMaxConfigBytes) {
    return InvalidArgument(fmt::format("config.json is {} bytes; allowed: up to {} bytes",
                                       json.size(), kMaxConfigBytes));
  }
  try {
    return FromJson(Json::parse(json));
  } catch (const Json::exception& error) {  // the library's way to report; it ends here
    return InvalidArgument(fmt::format("config.json is not valid JSON: {}", error.what()));
  }
}

Result<ModelConfig> LoadModelConfig(const std::string& path) {
  std::error_code ignored;
  std::string file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    file = (std::filesystem::path(path) / "config.json").string();
  }
  EMBERKV_ASSIGN_OR_RETURN(std::string text, ReadTextFile(file, kMaxConfigBytes));
  Result<ModelConfig> config = ParseModelConfig(text);
  if (!config.ok()) return config.status().WithContext(file);
  return config;
}

}  // namespace emberkv
