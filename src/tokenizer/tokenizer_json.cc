#include "tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace emberkv {
namespace {

using Json = nlohmann::json;

std::string Shown(const Json& value) {
  constexpr size_t kMaxShown = 80;
  // Never the whole of a large value: a vocabulary would be dumped only to be cut.
  if (value.is_object()) return fmt::format("an object of {} fields", value.size());
  if (value.is_array() && value.size() > 8) return fmt::format("a list of {} values", value.size());
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kMaxShown ? text : RepairUtf8(text.substr(0, kMaxShown)) + "...";
}

Status Refuse(const std::string& field, const Json& value, const std::string& rule) {
  return InvalidArgument(fmt::format("{} is {}; {}", field, Shown(value), rule));
}

// An object of the file and the name of its place there: "model.vocab", or "" for the whole.
class Node {
 public:
  static Result<Node> Of(const Json& value, std::string path) {
    if (!value.is_object())
      return Refuse(path.empty() ? "the file" : path, value, "it must be an object");
    return Node(value, std::move(path));
  }

  // The place of `key` in messages.
  std::string Place(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }

  // A field that is absent reads as null.
  const Json& operator[](const char* key) const {
    static const Json null;
    const auto found = value_->find(key);
    return found == value_->end() ? null : *found;
  }

  Status CheckKeys(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : value_->items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        return Refuse(Place(key), value, "this field is not known here");
      }
    }
    return Status::Ok();
  }

  Result<bool> Bool(const char* key, bool if_absent) const {
    const Json& value = (*this)[key];
    if (value.is_null()) return if_absent;
    if (!value.is_boolean()) return Refuse(Place(key), value, "it must be true or false");
    return value.get<bool>();
  }

  // A setting that is known and not implemented: it must be absent, null or one of `allowed`.
  Status RequireUnset(const char* key, std::initializer_list<Json> allowed = {}) const {
    const Json& value = (*this)[key];
    if (value.is_null()) return Status::Ok();
    for (const Json& one : allowed) {
      if (value == one) return Status::Ok();
    }
    return Refuse(Place(key), value, "this setting is not supported");
  }

  // The `type` of the object must be `type`.
  Status RequireType(std::string_view type) const {
    const Json& value = (*this)["type"];
    if (value.is_string() && value.get_ref<const std::string&>() == type) return Status::Ok();
    return Refuse(Place("type"), value, fmt::format("only \"{}\" is supported here", type));
  }

 private:
  Node(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json* value_;
  std::string path_;
};

std::string Indexed(const std::string& path, size_t i) { return fmt::format("{}[{}]", path, i); }

// ---- vocabulary and added tokens
// -----------------------------------------------------------------

// Tokens by id while they arrive in any order.
class TokenList {
 public:
  explicit TokenList(size_t max_tokens) : max_tokens_(max_tokens) {}

  // Several fields may give the same token the same id.
  Status Place(const std::string& field, const std::string& text, const Json& id) {
    if (!id.is_number_integer() || id < 0 || id >= max_tokens_) {
      return Refuse(field, id,
                    fmt::format("the {} tokens of the file must have the ids 0 to {}", max_tokens_,
                                static_cast<int64_t>(max_tokens_) - 1));
    }
    const auto index = id.get<size_t>();
    const auto [known, is_new] = id_of_.emplace(text, static_cast<int32_t>(index));
    if (!is_new && known->second != id) {
      return Refuse(field, id, fmt::format("the same token also has the id {}", known->second));
    }
    if (!is_new) return Status::Ok();
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    if (is_used_.size() < tokens_.size()) is_used_.resize(tokens_.size());
    if (is_used_[index]) {
      return Refuse(field, id, fmt::format("this is also the id of \"{}\"", tokens_[index].text));
    }
    is_used_[index] = true;
    std::optional<std::string> bytes = SpelledBytes(text);
    tokens_[index] = {text, bytes ? *std::move(bytes) : text, false};
    return Status::Ok();
  }

  Status CheckNoGaps() const {
    const auto gap = std::find(is_used_.begin(), is_used_.end(), false);
    if (gap == is_used_.end()) return Status::Ok();
    return InvalidArgument(
        fmt::format("no token of model.vocab or added_tokens has the id {}; ids go up to {}",
                    gap - is_used_.begin(), is_used_.size() - 1));
  }

  std::vector<Token>& tokens() { return tokens_; }
  std::unordered_map<std::string, int32_t>& id_of() { return id_of_; }

 private:
  size_t max_tokens_;
  std::vector<Token> tokens_;
  std::vector<bool> is_used_;
  std::unordered_map<std::string, int32_t> id_of_;
};

struct AddedLists {
  AddedTokens first;
  AddedTokens second;
};

Result<AddedLists> ReadAddedTokens(const Json& list, TokenList* tokens) {
  AddedLists added;
  std::unordered_map<std::string, size_t> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    EMBERKV_ASSIGN_OR_RETURN(const Node entry, Node::Of(list[i], Indexed("added_tokens", i)));
    EMBERKV_RETURN_IF_ERROR(entry.CheckKeys(
        {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    const Json& content = entry["content"];
    if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
      return Refuse(entry.Place("content"), content, "it must be a text that is not empty");
    }
    const auto& text = content.get_ref<const std::string&>();
    const auto [known, is_new] = seen.emplace(text, i);
    if (!is_new) {
      return Refuse(entry.Place("content"), content,
                    fmt::format("added_tokens[{}] is the same", known->second));
    }
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      EMBERKV_RETURN_IF_ERROR(entry.RequireUnset(key, {false}));
    }
    EMBERKV_ASSIGN_OR_RETURN(const bool is_special, entry.Bool("special", false));
    EMBERKV_ASSIGN_OR_RETURN(const bool is_normalized, entry.Bool("normalized", !is_special));
    EMBERKV_RETURN_IF_ERROR(tokens->Place(entry.Place("id"), text, entry["id"]));
    const int32_t id = tokens->id_of().at(text);
    tokens->tokens()[id].is_special = is_special;
    (is_normalized ? added.second : added.first).Add(text, id);
  }
  return added;
}

// ---- pre-tokenizer
// -------------------------------------------------------------------------------

Result<SplitStep> ReadSplit(const Node& node) {
  EMBERKV_RETURN_IF_ERROR(node.CheckKeys({"type", "pattern", "behavior", "invert"}));
  EMBERKV_ASSIGN_OR_RETURN(const Node pattern, Node::Of(node["pattern"], node.Place("pattern")));
  EMBERKV_RETURN_IF_ERROR(pattern.CheckKeys({"Regex"}));
  const Json& regex = pattern["Regex"];
  if (!regex.is_string()) return Refuse(pattern.Place("Regex"), regex, "it must be a text");
  Result<SplitRegex> compiled = SplitRegex::Compile(regex.get_ref<const std::string&>());
  if (!compiled.ok()) return Refuse(pattern.Place("Regex"), regex, compiled.status().message());
  EMBERKV_ASSIGN_OR_RETURN(const bool is_inverted, node.Bool("invert", false));
  SplitStep step{*std::move(compiled)};
  const Json& behavior = node["behavior"];
  if (behavior == "Removed") {
    (is_inverted ? step.keeps_rest : step.keeps_matches) = false;
  } else if (behavior != "Isolated") {
    return Refuse(node.Place("behavior"), behavior,
                  "only \"Isolated\" and \"Removed\" are supported");
  }
  return step;
}

Status ReadByteLevel(const Node& node, PreTokenizer* pretokenizer) {
  // trim_offsets concerns offsets only, which are not computed here.
  EMBERKV_RETURN_IF_ERROR(
      node.CheckKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  EMBERKV_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Bool("add_prefix_space", true));
  EMBERKV_ASSIGN_OR_RETURN(const bool use_regex, node.Bool("use_regex", true));
  if (add_prefix_space) pretokenizer->AddPrefixSpaces();
  if (!use_regex) return Status::Ok();
  EMBERKV_ASSIGN_OR_RETURN(SplitRegex regex, SplitRegex::Compile(kByteLevelPattern));
  pretokenizer->AddStep({std::move(regex)});
  return Status::Ok();
}

Result<PreTokenizer> ReadPreTokenizer(const Json& value) {
  PreTokenizer pretokenizer;
  EMBERKV_ASSIGN_OR_RETURN(const Node node, Node::Of(value, "pre_tokenizer"));
  if (node["type"] != "Sequence") {
    if (node["type"] != "ByteLevel") {
      return Refuse(node.Place("type"), node["type"],
                    "\"Sequence\" and \"ByteLevel\" are supported here");
    }
    EMBERKV_RETURN_IF_ERROR(ReadByteLevel(node, &pretokenizer));
    return pretokenizer;
  }
  EMBERKV_RETURN_IF_ERROR(node.CheckKeys({"type", "pretokenizers"}));
  const Json& list = node["pretokenizers"];
  const std::string path = node.Place("pretokenizers");
  if (!list.is_array() || list.empty()) return Refuse(path, list, "it must be a list of steps");
  for (size_t i = 0; i < list.size(); ++i) {
    EMBERKV_ASSIGN_OR_RETURN(const Node step, Node::Of(list[i], Indexed(path, i)));
    // ByteLevel spells out the bytes, so it comes last and nothing goes without it.
    if (i + 1 == list.size()) {
      EMBERKV_RETURN_IF_ERROR(step.RequireType("ByteLevel"));
      EMBERKV_RETURN_IF_ERROR(ReadByteLevel(step, &pretokenizer));
    } else {
      EMBERKV_RETURN_IF_ERROR(step.RequireType("Split"));
      EMBERKV_ASSIGN_OR_RETURN(SplitStep split, ReadSplit(step));
      pretokenizer.AddStep(std::move(split));
    }
  }
  return pretokenizer;
}

// ---- model
// ---------------------------------------------------------------------------------------

using Vocab = std::unordered_map<std::string, int32_t>;

Result<int32_t> MergePart(const std::string& field, const Json& merge, const std::string& part,
                          const Vocab& vocab) {
  const auto found = vocab.find(part);
  if (found != vocab.end()) return found->second;
  return Refuse(field, merge, fmt::format("model.vocab has no \"{}\"", part));
}

// "a b" or ["a", "b"].
Result<BpeMerge> ReadMerge(const std::string& field, const Json& merge, const Vocab& vocab) {
  std::string left, right;
  bool is_pair = false;
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    is_pair = space != std::string::npos && text.find(' ', space + 1) == std::string::npos;
    if (is_pair) {
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    is_pair = true;
    left = merge[0].get<std::string>();
    right = merge[1].get<std::string>();
  }
  if (!is_pair) return Refuse(field, merge, "it must be \"a b\" or [\"a\", \"b\"]");
  BpeMerge out;
  EMBERKV_ASSIGN_OR_RETURN(out.left, MergePart(field, merge, left, vocab));
  EMBERKV_ASSIGN_OR_RETURN(out.right, MergePart(field, merge, right, vocab));
  EMBERKV_ASSIGN_OR_RETURN(out.merged, MergePart(field, merge, left + right, vocab));
  return out;
}

Result<std::array<int32_t, 256>> ByteIds(const Vocab& vocab) {
  std::array<int32_t, 256> ids;
  for (size_t b = 0; b < ids.size(); ++b) {
    const std::string character = AlphabetCharacter(static_cast<uint8_t>(b));
    const auto found = vocab.find(character);
    if (found == vocab.end()) {
      return InvalidArgument(fmt::format(
          "model.vocab has no \"{}\", the token of byte {}; a byte-level vocabulary has all 256",
          character, b));
    }
    ids[b] = found->second;
  }
  return ids;
}

// `vocab` holds the tokens of model.vocab only, without those of added_tokens.
Result<Bpe> ReadModel(const Node& model, const Vocab& vocab) {
  EMBERKV_RETURN_IF_ERROR(model.CheckKeys(
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  EMBERKV_RETURN_IF_ERROR(model.RequireType("BPE"));
  EMBERKV_RETURN_IF_ERROR(model.RequireUnset("dropout", {0}));
  EMBERKV_RETURN_IF_ERROR(model.RequireUnset("continuing_subword_prefix", {""}));
  EMBERKV_RETURN_IF_ERROR(model.RequireUnset("end_of_word_suffix", {""}));
  // All 256 bytes are tokens, so that nothing is ever unknown or falls back: these three say
  // nothing.
  const Json& unk = model["unk_token"];
  if (!unk.is_null() && !unk.is_string())
    return Refuse("model.unk_token", unk, "it must be a text");
  EMBERKV_RETURN_IF_ERROR(model.Bool("fuse_unk", false).status());
  EMBERKV_RETURN_IF_ERROR(model.Bool("byte_fallback", false).status());
  EMBERKV_ASSIGN_OR_RETURN(const bool ignore_merges, model.Bool("ignore_merges", false));

  EMBERKV_ASSIGN_OR_RETURN(const auto byte_ids, ByteIds(vocab));
  const Json& list = model["merges"];
  if (!list.is_array()) return Refuse("model.merges", list, "it must be a list");
  std::vector<BpeMerge> merges;
  merges.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    EMBERKV_ASSIGN_OR_RETURN(const BpeMerge merge,
                             ReadMerge(Indexed("model.merges", i), list[i], vocab));
    merges.push_back(merge);
  }
  Bpe bpe(byte_ids, merges);
  if (ignore_merges) {
    std::unordered_map<std::string, int32_t> words;
    for (const auto& [text, id] : vocab) {
      if (std::optional<std::string> bytes = SpelledBytes(text))
        words.emplace(*std::move(bytes), id);
    }
    bpe.SetWholeWords(std::move(words));
  }
  return bpe;
}

// ---- the rest of the file
// ------------------------------------------------------------------------

Status CheckTopLevel(const Node& file) {
  EMBERKV_RETURN_IF_ERROR(
      file.CheckKeys({"version", "truncation", "padding", "added_tokens", "normalizer",
                      "pre_tokenizer", "post_processor", "decoder", "model"}));
  EMBERKV_RETURN_IF_ERROR(file.RequireUnset("version", {"1.0"}));
  EMBERKV_RETURN_IF_ERROR(file.RequireUnset("truncation"));
  EMBERKV_RETURN_IF_ERROR(file.RequireUnset("padding"));
  if (!file["normalizer"].is_null()) {
    EMBERKV_ASSIGN_OR_RETURN(const Node node, Node::Of(file["normalizer"], "normalizer"));
    EMBERKV_RETURN_IF_ERROR(node.CheckKeys({"type", "normalizers"}));
    EMBERKV_RETURN_IF_ERROR(node.RequireType("Sequence"));
    EMBERKV_RETURN_IF_ERROR(node.RequireUnset("normalizers", {Json::array()}));
  }
  // A ByteLevel post-processor trims offsets; the decoder's options concern only encoding.
  EMBERKV_ASSIGN_OR_RETURN(const Node decoder, Node::Of(file["decoder"], "decoder"));
  EMBERKV_RETURN_IF_ERROR(decoder.RequireType("ByteLevel"));
  EMBERKV_RETURN_IF_ERROR(
      decoder.CheckKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  if (!file["post_processor"].is_null()) {
    EMBERKV_ASSIGN_OR_RETURN(const Node node, Node::Of(file["post_processor"], "post_processor"));
    EMBERKV_RETURN_IF_ERROR(node.RequireType("ByteLevel"));
    EMBERKV_RETURN_IF_ERROR(
        node.CheckKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  }
  return Status::Ok();
}

Result<std::shared_ptr<const TokenizerTables>> ReadFile(const Json& json) {
  EMBERKV_ASSIGN_OR_RETURN(const Node file, Node::Of(json, ""));
  EMBERKV_RETURN_IF_ERROR(CheckTopLevel(file));
  EMBERKV_ASSIGN_OR_RETURN(const Node model, Node::Of(file["model"], "model"));
  const Json& vocab = model["vocab"];
  if (!vocab.is_object()) return Refuse("model.vocab", vocab, "it must be an object");
  const Json& added_list = file["added_tokens"];
  if (!added_list.is_null() && !added_list.is_array()) {
    return Refuse("added_tokens", added_list, "it must be a list");
  }

  TokenList tokens(vocab.size() + added_list.size());
  for (const auto& [text, id] : vocab.items()) {
    EMBERKV_RETURN_IF_ERROR(tokens.Place(fmt::format("model.vocab[\"{}\"]", text), text, id));
  }
  EMBERKV_ASSIGN_OR_RETURN(Bpe bpe, ReadModel(model, tokens.id_of()));
  EMBERKV_ASSIGN_OR_RETURN(AddedLists added, ReadAddedTokens(added_list, &tokens));
  EMBERKV_RETURN_IF_ERROR(tokens.CheckNoGaps());
  EMBERKV_ASSIGN_OR_RETURN(PreTokenizer pretokenizer, ReadPreTokenizer(file["pre_tokenizer"]));
  return std::make_shared<const TokenizerTables>(
      TokenizerTables{std::move(tokens.tokens()), std::move(tokens.id_of()), std::move(added.first),
                      std::move(added.second), std::move(pretokenizer), std::move(bpe)});
}

}  // namespace

Result<std::shared_ptr<const TokenizerTables>> ParseTokenizerJson(std::string_view json) {
  // nlohmann::json tells the place of a fault only by exception; none leaves this function.
  try {
    return ReadFile(Json::parse(json));
  } catch (const nlohmann::json::exception& e) {
    return InvalidArgument(fmt::format("the file is not JSON: {}", e.what()));
  }
}

}  // namespace emberkv
