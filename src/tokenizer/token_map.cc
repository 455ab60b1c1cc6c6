#include "tokenizer/token_map.h"

#include <fmt/format.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/mapped_file.h"
#include "tokenizer/utf8.h"

namespace emberkv {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 28;

// The published code protects a lone space from trimming by this character, then turns every one of
// them, those of the text too, into a space.
constexpr UChar32 kSentinel = 0xE000;

// The normalisers that made the published maps (Hugging Face `tokenizers`) know Unicode 9.0: to
// NFKC, NFD and StripAccents a younger character is not assigned and passes unchanged.
class Unicode9 {
 public:
  static Result<const Unicode9*> Instance() {
    static const Result<Unicode9>& instance = *new Result<Unicode9>(Make());  // lives to the end
    if (!instance.ok()) return instance.status();
    return &*instance;
  }

  // NFD of NFKC.
  Result<icu::UnicodeString> Decompose(const icu::UnicodeString& text) const {
    UErrorCode error = U_ZERO_ERROR;
    icu::UnicodeString composed, out;
    nfkc_->normalize(text, composed, error);
    nfd_->normalize(composed, out, error);
    if (U_FAILURE(error))
      return Internal(fmt::format("ICU cannot normalise: {}", u_errorName(error)));
    return out;
  }

  // StripAccents drops all of general category M: Mn, Mc and Me. Three characters changed sides
  // since.
  bool IsMark(UChar32 c) const {
    if (c == 0x1CF2 || c == 0x1CF3) return true;
    if (c == 0x111C9) return false;
    return (U_GET_GC_MASK(c) & U_GC_M_MASK) != 0 && assigned_->contains(c);
  }

 private:
  static Result<Unicode9> Make() {
    UErrorCode error = U_ZERO_ERROR;
    Unicode9 out;
    const icu::Normalizer2* nfkc = icu::Normalizer2::getNFKCInstance(error);
    const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(error);
    out.assigned_ = std::make_shared<icu::UnicodeSet>(u"[:Age=9.0:]", error);
    if (U_FAILURE(error)) return Internal(fmt::format("ICU has no data: {}", u_errorName(error)));
    out.assigned_->freeze();
    out.nfkc_ = std::make_shared<icu::FilteredNormalizer2>(*nfkc, *out.assigned_);
    out.nfd_ = std::make_shared<icu::FilteredNormalizer2>(*nfd, *out.assigned_);
    return out;
  }

  std::shared_ptr<icu::UnicodeSet> assigned_;
  std::shared_ptr<icu::FilteredNormalizer2> nfkc_;
  std::shared_ptr<icu::FilteredNormalizer2> nfd_;
};

bool IsFoldedSpace(UChar32 c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

Result<std::string> NormalizeForEngram(std::string_view text) {
  EMBERKV_ASSIGN_OR_RETURN(const Unicode9* unicode, Unicode9::Instance());
  EMBERKV_ASSIGN_OR_RETURN(const icu::UnicodeString decomposed,
                           unicode->Decompose(icu::UnicodeString::fromUTF8(
                               icu::StringPiece(text.data(), static_cast<int32_t>(text.size())))));
  std::u32string folded;
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1)) {
    const UChar32 c = decomposed.char32At(i);
    if (unicode->IsMark(c)) continue;
    if (!IsFoldedSpace(c)) {
      folded.push_back(static_cast<char32_t>(u_tolower(c)));
    } else if (folded.empty() || folded.back() != U' ') {
      folded.push_back(U' ');
    }
  }
  if (folded == U" ") return std::string(" ");
  const auto is_space = [](char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; };
  const auto begin = std::find_if_not(folded.begin(), folded.end(), is_space);
  const auto end = std::find_if_not(folded.rbegin(), folded.rend(), is_space).base();
  std::string out;
  for (auto c = begin; c < end; ++c) AppendUtf8(*c == kSentinel ? U' ' : *c, &out);
  return out;
}

Result<TokenMap> TokenMap::FromIds(std::vector<int32_t> ids) {
  if (ids.empty()) return InvalidArgument("the token map is empty");
  const auto max_ids = static_cast<int32_t>(ids.size());
  std::vector<bool> is_used(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= max_ids) {
      return InvalidArgument(
          fmt::format("token {} has the compressed id {}; {} tokens allow 0 to {}", i, ids[i],
                      max_ids, max_ids - 1));
    }
    is_used[static_cast<size_t>(ids[i])] = true;
  }
  const int32_t num_compressed = *std::max_element(ids.begin(), ids.end()) + 1;
  const auto gap = std::find(is_used.begin(), is_used.begin() + num_compressed, false);
  if (gap != is_used.begin() + num_compressed) {
    return InvalidArgument(fmt::format("no token has the compressed id {}, though they go up to {}",
                                       gap - is_used.begin(), num_compressed - 1));
  }
  return TokenMap(std::move(ids), num_compressed);
}

Result<TokenMap> LoadTokenMap(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return InvalidArgument(fmt::format("{}: it must be a JSON list of compressed ids", path));
  }
  std::vector<int32_t> ids;
  ids.reserve(json.size());
  for (const nlohmann::json& id : json) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return InvalidArgument(fmt::format("{}: token {} has no compressed id but a value of type {}",
                                         path, ids.size(), id.type_name()));
    }
    ids.push_back(id.get<int32_t>());
  }
  Result<TokenMap> map = TokenMap::FromIds(std::move(ids));
  if (!map.ok()) return map.status().WithContext(path);
  return map;
}

Result<TokenMap> DeriveTokenMap(const Tokenizer& tokenizer) {
  std::unordered_map<std::string, int32_t> compressed_of;
  std::vector<int32_t> ids;
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string text = RepairUtf8(tokenizer.TokenBytes(token));
    std::string key;
    if (text.find(kReplacementCharacter) != std::string::npos) {
      key = tokenizer.TokenText(token);
    } else {
      EMBERKV_ASSIGN_OR_RETURN(key, NormalizeForEngram(text));
      if (key.empty()) key = text;
    }
    const auto next = static_cast<int32_t>(compressed_of.size());
    ids.push_back(compressed_of.emplace(std::move(key), next).first->second);
  }
  return TokenMap::FromIds(std::move(ids));
}

Result<TokenMap> TokenMapFor(const std::string& model_dir, const Tokenizer* tokenizer,
                             int64_t vocab_size, int64_t expected_count) {
  const std::string sidecar = (std::filesystem::path(model_dir) / "token_map.json").string();
  std::error_code ignored;
  const bool has_sidecar = std::filesystem::exists(sidecar, ignored);
  if (!has_sidecar && tokenizer == nullptr) {
    return NotFound(
        fmt::format("{} does not exist and there is no tokenizer to derive it from", sidecar));
  }
  EMBERKV_ASSIGN_OR_RETURN(TokenMap map,
                           has_sidecar ? LoadTokenMap(sidecar) : DeriveTokenMap(*tokenizer));
  const std::string source = has_sidecar ? sidecar : "the token map derived from the tokenizer";
  const auto size = static_cast<int64_t>(map.ids().size());
  if (size > vocab_size) {
    return InvalidArgument(fmt::format("{} has {} tokens, more than the model's vocab_size of {}",
                                       source, size, vocab_size));
  }
  if (tokenizer != nullptr && size < tokenizer->vocab_size()) {
    return InvalidArgument(
        fmt::format("{} has {} tokens, the tokenizer {}", source, size, tokenizer->vocab_size()));
  }
  if (map.num_compressed() != expected_count) {
    return InvalidArgument(
        fmt::format("{} has {} distinct ids, but engram_compressed_vocab_size is {}", source,
                    map.num_compressed(), expected_count));
  }
  return map;
}

}  // namespace emberkv
