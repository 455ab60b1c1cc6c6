#include "cli/prompt_text.h"

#include <cstdint>

#include "base/mapped_file.h"

namespace emberkv {
namespace {

constexpr uint64_t kMaxDocumentBytes = uint64_t{1} << 31;

}  // namespace

Result<std::string> ReadDocuments(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) {
    EMBERKV_ASSIGN_OR_RETURN(const std::string document, ReadTextFile(file, kMaxDocumentBytes));
    text += document;
  }
  return text;
}

bool StartsNewLine(std::string_view before, bool is_first, std::string_view prompt) {
  if (prompt.empty() || (is_first && before.empty())) return false;
  return !prompt.starts_with('\n') && !before.ends_with('\n');
}

std::string FirstText(const std::string& documents, const std::string& prompt) {
  return documents + (StartsNewLine(documents, true, prompt) ? "\n" : "") + prompt;
}

}  // namespace emberkv
