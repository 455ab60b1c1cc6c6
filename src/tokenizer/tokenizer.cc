#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace emberkv {

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 28;

// What one call of Encode writes to.
struct EncodeScratch {
  RegexScratch regex;
  std::string storage;
  std::vector<std::string_view> words;
};

// `text` without added tokens.
Status EncodePlain(const TokenizerTables& tables, std::string_view text, EncodeScratch* scratch,
                   std::vector<int32_t>* ids) {
  EMBERKV_RETURN_IF_ERROR(
      tables.pretokenizer.Split(text, &scratch->regex, &scratch->storage, &scratch->words));
  for (const std::string_view word : scratch->words) tables.bpe.Encode(word, ids);
  return Status::Ok();
}

// Calls plain(piece) for the text between matches and adds the id of each match.
template <typename Plain>
Status ForEachPiece(const AddedTokens& added, std::string_view text, std::vector<int32_t>* ids,
                    const Plain& plain) {
  size_t done = 0;
  while (const std::optional<AddedTokens::Match> match = added.Find(text, done)) {
    EMBERKV_RETURN_IF_ERROR(plain(text.substr(done, match->begin - done)));
    ids->push_back(match->id);
    done = match->end;
  }
  return plain(text.substr(done));
}

}  // namespace

Result<Tokenizer> Tokenizer::Parse(std::string_view json) {
  EMBERKV_ASSIGN_OR_RETURN(std::shared_ptr<const TokenizerTables> tables, ParseTokenizerJson(json));
  return Tokenizer(std::move(tables));
}

Result<Tokenizer> Tokenizer::Load(const std::string& path) {
  std::error_code ignored;
  const std::string file = std::filesystem::is_directory(path, ignored)
                               ? (std::filesystem::path(path) / "tokenizer.json").string()
                               : path;
  EMBERKV_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(file, kMaxFileBytes));
  Result<Tokenizer> tokenizer = Parse(json);
  if (!tokenizer.ok()) return tokenizer.status().WithContext(file);
  return tokenizer;
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text) const {
  std::string repaired;
  if (!IsWellFormedUtf8(text)) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  if (text.size() >= INT32_MAX) {
    return InvalidArgument(fmt::format(
        "the text has {} bytes, fewer than {} can be encoded at once", text.size(), INT32_MAX));
  }
  std::vector<int32_t> ids;
  EncodeScratch scratch;
  EMBERKV_RETURN_IF_ERROR(
      ForEachPiece(tables_->first_added, text, &ids, [&](std::string_view piece) {
        return ForEachPiece(tables_->second_added, piece, &ids, [&](std::string_view plain) {
          return EncodePlain(*tables_, plain, &scratch, &ids);
        });
      }));
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!Contains(id) || (skip_special && IsSpecial(id))) continue;
    bytes += TokenBytes(id);
  }
  return RepairUtf8(bytes);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(tables_->tokens.size()); }

bool Tokenizer::IsSpecial(int32_t id) const { return tables_->tokens[id].is_special; }

std::string_view Tokenizer::TokenBytes(int32_t id) const { return tables_->tokens[id].bytes; }

std::string_view Tokenizer::TokenText(int32_t id) const { return tables_->tokens[id].text; }

std::optional<int32_t> Tokenizer::TokenId(std::string_view token_text) const {
  const auto found = tables_->id_of.find(std::string(token_text));
  if (found == tables_->id_of.end()) return std::nullopt;
  return found->second;
}

std::string StreamDecoder::Push(int32_t id) {
  if (!tokenizer_.Contains(id) || (skip_special_ && tokenizer_.IsSpecial(id))) return "";
  pending_ += tokenizer_.TokenBytes(id);
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Part part = FirstUtf8Part(rest);
    if (part.is_cut) break;
    out += part.is_well_formed ? rest.substr(0, part.length) : kReplacementCharacter;
    rest.remove_prefix(part.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string StreamDecoder::Finish() {
  const std::string out = RepairUtf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace emberkv
