// Cuts text into the words that are byte-pair encoded one by one: a sequence of Split steps, then
// the ByteLevel step, as in the `pre_tokenizer` of a tokenizer.json.
//
// Each step sees each piece of the step before it as a text of its own (a lookahead ends with the
// piece). Filled while a tokenizer loads, immutable afterwards: any thread may split, each with a
// RegexScratch of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/split_regex.h"

namespace emberkv {

struct SplitStep {
  SplitRegex regex;
  // What becomes of the matches and of the text between them; what is kept is a piece of its own.
  bool keeps_matches = true;
  bool keeps_rest = true;
};

class PreTokenizer {
 public:
  void AddStep(SplitStep step) { steps_.push_back(std::move(step)); }

  // ByteLevel's `add_prefix_space`: every piece of the steps so far that does not begin with a
  // space gets one. Steps added later see the pieces with that space.
  void AddPrefixSpaces() { prefix_space_before_ = steps_.size(); }

  // The words of `text` (well-formed UTF-8) in order; views into `text` or into `storage`.
  Status Split(std::string_view text, RegexScratch* scratch, std::string* storage,
               std::vector<std::string_view>* words) const;

 private:
  static constexpr size_t kNever = static_cast<size_t>(-1);

  std::vector<SplitStep> steps_;
  size_t prefix_space_before_ = kNever;
};

// The pattern of ByteLevel's `use_regex`.
extern const char kByteLevelPattern[];

}  // namespace emberkv
