#include "server/answer_stream.h"

#include <algorithm>
#include <utility>

#include "prompt/python_json.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

using Kind = AnswerDelta::Kind;

const std::string kCallsOpening = "\n\n" + std::string(kCallsBegin);
constexpr std::string_view kNameBegin = " name=\"";

// Bytes at the end of `text` that begin `tag`.
size_t BegunBytes(std::string_view text, std::string_view tag) {
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (text.ends_with(tag.substr(0, size))) return size;
  }
  return 0;
}

// Bytes at the end of `text` that begin a character of UTF-8.
size_t UnfinishedBytes(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(3, text.size()); ++size) {
    const auto lead = static_cast<unsigned char>(text[text.size() - size]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return length > size ? size : 0;
  }
  return 0;
}

// `text` begins one of `wholes`, or would with more of it.
bool MayBecome(std::string_view text, std::initializer_list<std::string_view> wholes) {
  return std::any_of(wholes.begin(), wholes.end(),
                     [&](std::string_view whole) { return whole.starts_with(text) || text.starts_with(whole); });
}

// `text` lies between the invoke tag's name and the tag that follows it; as ParseAnswer reads it.
bool ReadToolName(std::string_view text, std::string* name) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\f\v"), text.size()));
  if (text.ends_with(">\n\n")) text.remove_suffix(1);
  constexpr std::string_view kBegin = "name=\"";
  constexpr std::string_view kEnd = "\">\n";
  if (text.size() < kBegin.size() + kEnd.size() || !text.starts_with(kBegin) || !text.ends_with(kEnd)) return false;
  *name = text.substr(kBegin.size(), text.size() - kBegin.size() - kEnd.size());
  return true;
}

}  // namespace

AnswerStream::AnswerStream(const AnswerForm& form)
    : parses_tool_calls_(form.parses_tool_calls),
      section_(form.is_thinking ? Section::kReasoning : Section::kContent) {}

std::vector<AnswerDelta> AnswerStream::Push(std::string_view text) {
  held_ += text;
  while (Advance()) {
  }
  return std::exchange(out_, {});
}

std::vector<AnswerDelta> AnswerStream::Finish() {
  if (section_ == Section::kReasoning || section_ == Section::kContent || section_ == Section::kValue ||
      section_ == Section::kAfterCalls || section_ == Section::kBroken) {
    EmitText(held_);
  }
  held_.clear();
  return std::exchange(out_, {});
}

bool AnswerStream::Advance() {
  switch (section_) {
    case Section::kReasoning:
      return TakeUntil(kThinkEnd) && GoTo(Section::kContent, kThinkEnd.size());
    case Section::kContent:
      if (!parses_tool_calls_) return TakeUntil("");
      return TakeUntil(kCallsOpening) && GoTo(Section::kCalls, 0);
    case Section::kAfterCalls:
    case Section::kBroken:
      return TakeUntil("");
    case Section::kCalls:
      return TakeCalls();
    case Section::kToolName:
      return TakeToolName();
    case Section::kParameter:
      return TakeParameter();
    case Section::kValue:
      return TakeValue();
    case Section::kAfterValue:
      return TakeAfterValue();
  }
  return false;
}

// Emits what lies before the tag, or all that cannot belong to one. True when the tag is at the front now.
bool AnswerStream::TakeUntil(std::string_view tag) {
  const size_t at = tag.empty() ? std::string::npos : held_.find(tag);
  const bool is_found = at != std::string::npos;
  size_t size = at;
  if (!is_found) {
    const size_t begun = tag.empty() ? 0 : BegunBytes(held_, tag);
    size = held_.size() - std::max(begun, UnfinishedBytes(held_));
  }
  EmitText(std::string_view(held_).substr(0, size));
  held_.erase(0, size);
  return is_found;
}

bool AnswerStream::TakeCalls() {
  const std::string opening = (num_calls_ == 0 ? kCallsOpening : "") + ">\n";
  const std::string invoke = opening + std::string(kInvokeBegin);
  const std::string end = opening + std::string(kCallsEnd);
  if (held_.starts_with(invoke)) return GoTo(Section::kToolName, invoke.size());
  if (held_.starts_with(end)) return GoTo(Section::kAfterCalls, end.size());
  return !MayBecome(held_, {invoke, end}) && Break("");
}

bool AnswerStream::TakeToolName() {
  const Tag tag = FindFirst({kParameterBegin, kInvokeEnd}, 0);
  if (!tag.is_found()) return false;
  std::string name;
  if (!ReadToolName(std::string_view(held_).substr(0, tag.at), &name)) return Break(kInvokeBegin);
  out_.push_back({Kind::kCall, std::move(name), num_calls_});
  Emit(Kind::kArguments, "{");
  parameters_.clear();
  const bool has_parameter = tag.text == kParameterBegin;
  if (!has_parameter) EndCall();
  return GoTo(has_parameter ? Section::kParameter : Section::kCalls, tag.at + tag.text.size());
}

bool AnswerStream::TakeParameter() {
  if (!MayBecome(held_, {kNameBegin})) return Break(kParameterBegin);
  if (held_.size() < kNameBegin.size()) return false;
  // The name may have quotes in it: it ends where the flag begins.
  constexpr std::string_view kTrue = "\" string=\"true\">";
  constexpr std::string_view kFalse = "\" string=\"false\">";
  const Tag tag = FindFirst({kTrue, kFalse, kParameterEnd}, kNameBegin.size());
  if (!tag.is_found()) return false;
  std::string name = held_.substr(kNameBegin.size(), tag.at - kNameBegin.size());
  const bool is_known = std::find(parameters_.begin(), parameters_.end(), name) != parameters_.end();
  if (tag.text == kParameterEnd || is_known) return Break(kParameterBegin);
  is_string_ = tag.text == kTrue;
  Emit(Kind::kArguments, (parameters_.empty() ? "" : ", ") + PythonJsonString(name) + (is_string_ ? ": \"" : ": "));
  parameters_.push_back(std::move(name));
  return GoTo(Section::kValue, tag.at + tag.text.size());
}

bool AnswerStream::TakeValue() {
  if (!TakeUntil(kParameterEnd)) return false;
  if (is_string_) Emit(Kind::kArguments, "\"");
  return GoTo(Section::kAfterValue, kParameterEnd.size());
}

bool AnswerStream::TakeAfterValue() {
  const std::string parameter = ">\n" + std::string(kParameterBegin);
  const std::string end = ">\n" + std::string(kInvokeEnd);
  if (held_.starts_with(parameter)) return GoTo(Section::kParameter, parameter.size());
  if (held_.starts_with(end)) {
    EndCall();
    return GoTo(Section::kCalls, end.size());
  }
  return !MayBecome(held_, {parameter, end}) && Break(kParameterEnd);
}

AnswerStream::Tag AnswerStream::FindFirst(std::initializer_list<std::string_view> tags, size_t from) {
  Tag first;
  size_t longest = 0;
  for (const std::string_view tag : tags) {
    longest = std::max(longest, tag.size());
    const size_t at = held_.find(tag, std::max(from, searched_));
    if (at < first.at) first = {at, tag};
  }
  if (!first.is_found()) searched_ = held_.size() - std::min(held_.size(), longest - 1);
  return first;
}

bool AnswerStream::GoTo(Section section, size_t taken) {
  held_.erase(0, taken);
  section_ = section;
  searched_ = 0;
  return true;
}

// `tag` was taken already and belongs to what is no call.
bool AnswerStream::Break(std::string_view tag) {
  held_.insert(0, tag);
  return GoTo(Section::kBroken, 0);
}

void AnswerStream::EndCall() {
  Emit(Kind::kArguments, "}");
  ++num_calls_;
}

// Text of the section at hand.
void AnswerStream::EmitText(std::string_view text) {
  if (section_ == Section::kReasoning) return Emit(Kind::kReasoning, text);
  if (section_ != Section::kValue) return Emit(Kind::kContent, text);
  if (!is_string_) return Emit(Kind::kArguments, text);
  const std::string quoted = PythonJsonString(text);
  Emit(Kind::kArguments, std::string_view(quoted).substr(1, quoted.size() - 2));
}

void AnswerStream::Emit(Kind kind, std::string_view text) {
  if (text.empty()) return;
  const int call = kind == Kind::kArguments ? num_calls_ : 0;
  if (!out_.empty() && out_.back().kind == kind && out_.back().call == call) {
    out_.back().text += text;  // one piece for what came at once
  } else {
    out_.push_back({kind, std::string(text), call});
  }
}

}  // namespace emberkv
