// A regular expression of a pre-tokenizer, as Hugging Face `tokenizers` understands it.
//
// There the engine is Oniguruma, here it is PCRE2 (UTF, UCP, JIT where the system allows it). The
// two agree on what tokenizers use. A pattern with anything on which they may differ (\w, \h,
// script names, nested classes, inline modes...) is refused rather than read differently.
//
// A compiled SplitRegex is immutable: any thread may search, each with a RegexScratch of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace emberkv {

// What one search needs to write: one per thread.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class SplitRegex;

  pcre2_real_match_data_8* match_data_;
  pcre2_real_match_context_8* match_context_;
  pcre2_real_jit_stack_8* jit_stack_;
};

class SplitRegex {
 public:
  static Result<SplitRegex> Compile(std::string_view pattern);

  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };

  // Appends all matches in `text` (well-formed UTF-8), left to right and without overlap. An empty
  // match right behind another match does not count. Fails when the pattern exceeds the limits of
  // the engine on this text.
  Status FindAll(std::string_view text, RegexScratch* scratch, std::vector<Span>* matches) const;

 private:
  explicit SplitRegex(pcre2_real_code_8* code);

  std::shared_ptr<pcre2_real_code_8> code_;
};

}  // namespace emberkv
