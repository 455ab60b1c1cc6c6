#include "prompt/python_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

Status TooDeep() {
  return ResourceExhausted(
      fmt::format("JSON is nested deeper than {} levels, the most allowed", kMaxJsonDepth));
}

// Walks a text without building anything and stops at the first thing that may not be built.
class LimitCheck final : public nlohmann::json_sax<Json> {
 public:
  const Status& status() const { return status_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  // Integers that do not fit arrive here too, rounded.
  bool number_float(number_float_t, const string_t& written) override {
    if (written.find_first_of(".eE") != string_t::npos) return true;
    return Stop(ResourceExhausted(
        fmt::format("JSON integer {} has more than 64 bits, the most allowed", written)));
  }

  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t&) override {
    if (++num_fields_.back() <= kMaxJsonFields) return true;
    return Stop(ResourceExhausted(
        fmt::format("JSON object has more than {} fields, the most allowed", kMaxJsonFields)));
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Stop(InvalidArgument(fmt::format("not JSON: error at byte {}", position)));
  }

 private:
  bool Open() {
    if (num_fields_.size() == kMaxJsonDepth) return Stop(TooDeep());
    num_fields_.push_back(0);
    return true;
  }
  bool Close() {
    num_fields_.pop_back();
    return true;
  }
  bool Stop(Status status) {
    status_ = std::move(status);
    return false;
  }

  Status status_;
  std::vector<size_t> num_fields_;  // of the objects and lists that are open
};

// Python's repr: the shortest digits that read back as the same number, written plainly from 1e-4
// to below 1e16.
std::string PythonFloat(double value) {
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  if (is_plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void AppendString(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

Status AppendJson(const Json& value, int depth, std::string* out) {
  if (value.is_string()) {
    AppendString(value.get_ref<const std::string&>(), out);
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (!std::isfinite(number)) return InvalidArgument("a JSON number is not finite");
    *out += PythonFloat(number);
  } else if (!value.is_structured()) {
    *out += value.dump();  // null, true, false, integers
  } else {
    if (depth == kMaxJsonDepth) return TooDeep();
    const bool is_object = value.is_object();
    *out += is_object ? '{' : '[';
    const char* separator = "";
    for (const auto& item : value.items()) {
      *out += separator;
      separator = ", ";
      if (is_object) {
        AppendString(item.key(), out);
        *out += ": ";
      }
      EMBERKV_RETURN_IF_ERROR(AppendJson(item.value(), depth + 1, out));
    }
    *out += is_object ? '}' : ']';
  }
  return Status::Ok();
}

}  // namespace

Result<Json> ParseJson(std::string_view text) {
  LimitCheck check;
  if (!Json::sax_parse(text, &check)) return check.status();
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return InvalidArgument("not JSON");
  return value;
}

Result<std::string> PythonJson(const Json& value) {
  std::string text;
  EMBERKV_RETURN_IF_ERROR(AppendJson(value, 0, &text));
  return text;
}

std::string PythonJsonString(std::string_view text) {
  std::string out;
  AppendString(text, &out);
  return out;
}

}  // namespace emberkv
