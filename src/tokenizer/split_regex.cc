#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/split_regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <iterator>

#include "tokenizer/utf8.h"

namespace emberkv {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kJitStackStartBytes = 32 << 10;
constexpr size_t kJitStackMaxBytes = 16 << 20;

// Unicode White_Space. PCRE2's own \s has U+180E as well, which left that set long ago.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Escapes of a letter or digit with the same meaning in both engines; \s, \S and \p are handled
// apart.
constexpr std::string_view kSharedEscapes = "dDnrtfAz";
constexpr std::string_view kSharedGroups[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:"};

constexpr std::string_view kCategories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

bool IsAsciiAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Checks a pattern against the common ground of both engines and rewrites \s and \S.
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> Read() {
    while (!rest_.empty()) {
      const char c = rest_[0];
      if (c == '\\') {
        EMBERKV_RETURN_IF_ERROR(ReadEscape(/*in_class=*/false));
      } else if (c == '[') {
        EMBERKV_RETURN_IF_ERROR(ReadClass());
      } else if (c == '(') {
        EMBERKV_RETURN_IF_ERROR(ReadGroupStart());
      } else if (c == '{') {
        EMBERKV_RETURN_IF_ERROR(ReadRepeat());
      } else {
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  Status Refuse(size_t length) const {
    return InvalidArgument(fmt::format("\"{}\" is not supported", rest_.substr(0, length)));
  }

  void Copy(size_t length) {
    out_ += rest_.substr(0, length);
    rest_.remove_prefix(length);
  }

  void Replace(size_t length, std::string_view with) {
    out_ += with;
    rest_.remove_prefix(length);
  }

  Status ReadEscape(bool in_class) {
    if (rest_.size() < 2) return InvalidArgument("it ends in a backslash");
    const char c = rest_[1];
    if (c == 's') {
      Replace(2, in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace));
    } else if (c == 'S' && !in_class) {
      Replace(2, fmt::format("[^{}]", kWhiteSpace));
    } else if (c == 'p' || c == 'P') {
      return ReadCategory();
    } else if (IsAsciiAlnum(c) && (kSharedEscapes.find(c) == std::string_view::npos ||
                                   (in_class && (c == 'A' || c == 'z')))) {
      return Refuse(2);
    } else {
      Copy(1 + FirstUtf8Part(rest_.substr(1)).length);
    }
    return Status::Ok();
  }

  // \p{L}, \p{Lu}, \p{^L}: general categories only.
  Status ReadCategory() {
    const size_t close = rest_.find('}');
    const size_t length = close == std::string_view::npos ? rest_.size() : close + 1;
    if (close == std::string_view::npos || rest_[2] != '{')
      return Refuse(std::min<size_t>(length, 3));
    std::string_view name = rest_.substr(3, close - 3);
    if (!name.empty() && name[0] == '^') name.remove_prefix(1);
    if (std::find(std::begin(kCategories), std::end(kCategories), name) == std::end(kCategories)) {
      return Refuse(length);
    }
    Copy(length);
    return Status::Ok();
  }

  Status ReadClass() {
    Copy(rest_.substr(0, 2) == "[^" ? 2 : 1);
    if (!rest_.empty() && rest_[0] == ']') return Refuse(1);
    while (!rest_.empty() && rest_[0] != ']') {
      if (rest_[0] == '\\') {
        EMBERKV_RETURN_IF_ERROR(ReadEscape(/*in_class=*/true));
      } else if (rest_[0] == '[') {
        return Refuse(1);
      } else if (rest_.substr(0, 2) == "&&") {
        return Refuse(2);
      } else {
        Copy(1);
      }
    }
    if (rest_.empty()) return InvalidArgument("a character class has no \"]\"");
    Copy(1);
    return Status::Ok();
  }

  Status ReadGroupStart() {
    Copy(1);
    if (rest_.empty() || (rest_[0] != '?' && rest_[0] != '*')) return Status::Ok();
    for (const std::string_view group : kSharedGroups) {
      if (rest_.substr(0, group.size()) == group) {
        Copy(group.size());
        return Status::Ok();
      }
    }
    return Refuse(3);
  }

  // {n}, {n,} and {n,m}, not followed by ? or +, which the engines read differently.
  Status ReadRepeat() {
    const size_t close = rest_.find('}');
    if (close == std::string_view::npos) return Refuse(1);
    const std::string_view body = rest_.substr(1, close - 1);
    const size_t digits = std::min(body.find_first_not_of("0123456789"), body.size());
    const bool is_repeat =
        digits > 0 && (digits == body.size() ||
                       (body[digits] == ',' && body.find_first_not_of("0123456789", digits + 1) ==
                                                   std::string_view::npos));
    if (!is_repeat) return Refuse(close + 1);
    const std::string_view after = rest_.substr(close + 1, 1);
    if (after == "?" || after == "+") return Refuse(close + 2);
    Copy(close + 1);
    return Status::Ok();
  }

  std::string_view rest_;
  std::string out_;
};

std::string PcreMessage(int error) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(error, buffer, sizeof buffer) < 0)
    return fmt::format("error {}", error);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

RegexScratch::RegexScratch()
    : match_data_(pcre2_match_data_create(1, nullptr)),
      match_context_(pcre2_match_context_create(nullptr)),
      jit_stack_(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr)) {
  // Without executable memory there is no JIT stack, and the interpreter runs.
  if (match_context_ != nullptr && jit_stack_ != nullptr) {
    pcre2_jit_stack_assign(match_context_, nullptr, jit_stack_);
  }
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(match_data_);
  pcre2_match_context_free(match_context_);
  pcre2_jit_stack_free(jit_stack_);
}

SplitRegex::SplitRegex(pcre2_real_code_8* code) : code_(code, pcre2_code_free) {}

Result<SplitRegex> SplitRegex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument(
        fmt::format("it has {} bytes, at most {} are allowed", pattern.size(), kMaxPatternBytes));
  }
  if (!IsWellFormedUtf8(pattern)) return InvalidArgument("it is not UTF-8");
  EMBERKV_ASSIGN_OR_RETURN(const std::string common, PatternReader(pattern).Read());
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) return ResourceExhausted("no memory for a regular expression");
  // As in Oniguruma: lines end in \n only, and ^ and $ match at every line.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(common.data()), common.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context.get());
  if (code == nullptr) return InvalidArgument(PcreMessage(error));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if it fails, pcre2_match interprets
  return SplitRegex(code);
}

Status SplitRegex::FindAll(std::string_view text, RegexScratch* scratch,
                           std::vector<Span>* matches) const {
  if (scratch->match_data_ == nullptr || scratch->match_context_ == nullptr) {
    return ResourceExhausted("no memory for a regular expression");
  }
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch->match_data_);
  size_t from = 0;
  size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    const int rc =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                    PCRE2_NO_UTF_CHECK, scratch->match_data_, scratch->match_context_);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return ResourceExhausted(fmt::format("a pre-tokenizer pattern gave up at byte {} of {}: {}",
                                           from, text.size(), PcreMessage(rc)));
    }
    const Span span{found[0], found[1]};
    if (span.begin == span.end && span.end == last_end) {
      if (from == text.size()) break;
      from += FirstUtf8Part(text.substr(from)).length;
      continue;
    }
    matches->push_back(span);
    from = last_end = span.end;
  }
  return Status::Ok();
}

}  // namespace emberkv
