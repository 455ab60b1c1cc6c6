// An answer as the model writes it, taken apart while it comes: reasoning, content, tool calls.
//
// For text that ParseAnswer accepts the deltas, joined, are its message, however the text is cut. In text that
// breaks the format a call that breaks off keeps arguments without their closing brace, which no client can
// take for a whole call, and what follows is content. One per answer, used by one thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace emberkv {

struct AnswerDelta {
  enum class Kind { kReasoning, kContent, kCall, kArguments };

  Kind kind = Kind::kContent;
  std::string text;  // kCall: the function's name, a call begins; kArguments: a piece of JSON text
  int call = 0;      // index of the call, of the latter two

  bool operator==(const AnswerDelta&) const = default;
};

struct AnswerForm {
  bool is_thinking = false;
  bool parses_tool_calls = false;
};

class AnswerStream {
 public:
  explicit AnswerStream(const AnswerForm& form);

  // What is certain now. Characters are whole; only bytes that spell none may be cut.
  std::vector<AnswerDelta> Push(std::string_view text);
  // What was held back, at the end of the answer. An unfinished tag says nothing.
  std::vector<AnswerDelta> Finish();

  // Whether a block of calls is complete and not empty.
  bool has_calls() const { return section_ == Section::kAfterCalls && num_calls_ > 0; }

 private:
  enum class Section {
    kReasoning,
    kContent,
    kCalls,       // from the calls tag, or from behind a call, to the next tag
    kToolName,    // from behind an invoke tag to the next one
    kParameter,   // from behind a parameter tag to its value
    kValue,       // to the closing tag
    kAfterValue,  // to the next tag
    kAfterCalls,
    kBroken,      // what began as a block of calls and is none
  };

  struct Tag {
    size_t at = std::string::npos;
    std::string_view text;
    bool is_found() const { return !text.empty(); }
  };

  // Take what they can from the front of held_, and say whether the section has changed.
  bool TakeUntil(std::string_view tag);  // emits; without a tag: all
  bool TakeCalls();
  bool TakeToolName();
  bool TakeParameter();
  bool TakeValue();
  bool TakeAfterValue();
  bool Advance();

  Tag FindFirst(std::initializer_list<std::string_view> tags, size_t from);
  bool GoTo(Section section, size_t taken);
  bool Break(std::string_view tag);
  void EndCall();
  void EmitText(std::string_view text);
  void Emit(AnswerDelta::Kind kind, std::string_view text);

  const bool parses_tool_calls_;
  Section section_;
  std::string held_;     // not yet taken
  size_t searched_ = 0;  // no tag that is looked for begins before this
  int num_calls_ = 0;    // complete ones
  std::vector<std::string> parameters_;  // names, of the call at hand
  bool is_string_ = false;               // the value at hand
  std::vector<AnswerDelta> out_;
};

}  // namespace emberkv
