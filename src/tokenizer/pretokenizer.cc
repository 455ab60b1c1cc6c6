#include "tokenizer/pretokenizer.h"

namespace emberkv {

const char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

Status ApplyStep(const SplitStep& step, std::string_view piece, RegexScratch* scratch,
                 std::vector<SplitRegex::Span>* matches, std::vector<std::string_view>* out) {
  matches->clear();
  EMBERKV_RETURN_IF_ERROR(step.regex.FindAll(piece, scratch, matches));
  const auto keep = [&](size_t begin, size_t end, bool is_kept) {
    if (is_kept && begin < end) out->push_back(piece.substr(begin, end - begin));
  };
  size_t done = 0;
  for (const SplitRegex::Span& match : *matches) {
    keep(done, match.begin, step.keeps_rest);
    keep(match.begin, match.end, step.keeps_matches);
    done = match.end;
  }
  keep(done, piece.size(), step.keeps_rest);
  return Status::Ok();
}

// The pieces laid out anew in `storage`, each with a space in front unless it begins with one.
void AddSpaces(std::string* storage, std::vector<std::string_view>* pieces) {
  size_t size = 0;
  for (const std::string_view piece : *pieces) size += piece.size() + 1;
  storage->clear();
  storage->reserve(size);  // the views below stay valid
  for (std::string_view& piece : *pieces) {
    const size_t begin = storage->size();
    if (piece[0] != ' ') storage->push_back(' ');
    storage->append(piece);
    piece = std::string_view(*storage).substr(begin);
  }
}

}  // namespace

Status PreTokenizer::Split(std::string_view text, RegexScratch* scratch, std::string* storage,
                           std::vector<std::string_view>* words) const {
  words->clear();
  if (text.empty()) return Status::Ok();
  words->push_back(text);
  std::vector<std::string_view> pieces;
  std::vector<SplitRegex::Span> matches;
  for (size_t i = 0; i <= steps_.size(); ++i) {
    if (i == prefix_space_before_) AddSpaces(storage, words);
    if (i == steps_.size()) break;
    pieces.swap(*words);
    words->clear();
    for (const std::string_view piece : pieces) {
      EMBERKV_RETURN_IF_ERROR(ApplyStep(steps_[i], piece, scratch, &matches, words));
    }
  }
  return Status::Ok();
}

}  // namespace emberkv
