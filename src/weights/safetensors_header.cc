#include "weights/safetensors_header.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace emberkv {
namespace {

constexpr size_t kMaxRank = 16;
constexpr size_t kMaxNameBytes = 1024;

// Walks the events of
//   { "__metadata__": {string: string...}, NAME: {"dtype": "..", "shape": [..], "data_offsets": [a,
//   b]}... }
// and stops with a message at the first one that has no place there.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEntries Take() && { return std::move(header_); }
  const std::string& error() const { return error_; }

  bool null() override { return Misplaced("null"); }
  bool boolean(bool) override { return Misplaced("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Misplaced("the number " + text.substr(0, 40));
  }
  bool binary(binary_t&) override { return Misplaced("binary data"); }

  bool number_integer(number_integer_t value) override {
    return Misplaced(fmt::format("the negative number {}", value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Fail(fmt::format("dimension {} overflows 64 bits", value));
      }
      if (entry_.shape.size() == kMaxRank) {
        return Fail(fmt::format("more than {} dimensions", kMaxRank));
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets && num_offsets_ < 2) {
      (num_offsets_ == 0 ? entry_.begin : entry_.end) = value;
      ++num_offsets_;
      return true;
    }
    return Misplaced(fmt::format("the number {}", value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(key_, std::move(value)).second) {
        return Fail(fmt::format("metadata key {} appears twice", Quoted(key_)));
      }
      return true;
    }
    if (place_ == Place::kTensor && field_ == Field::kDType) {
      entry_.dtype = std::move(value);
      return true;
    }
    return Misplaced("the string " + Quoted(value));
  }

  bool start_object(size_t) override {
    if (place_ == Place::kFile && !began_) {
      began_ = true;
      place_ = Place::kTop;
      return true;
    }
    if (place_ == Place::kTop && key_ == "__metadata__") {
      if (has_metadata_) return Fail("'__metadata__' appears twice");
      has_metadata_ = true;
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ == Place::kTop) {
      place_ = Place::kTensor;
      entry_ = HeaderEntry();
      entry_.name = key_;
      seen_fields_ = 0;
      field_ = Field::kNone;
      return true;
    }
    return Misplaced("an object");
  }

  bool key(string_t& name) override {
    if (name.size() > kMaxNameBytes) {
      return Fail(fmt::format("name {} has {} bytes, at most {} are allowed", Quoted(name),
                              name.size(), kMaxNameBytes));
    }
    if (place_ != Place::kTensor) {
      key_ = std::move(name);
      return true;
    }
    field_ = name == "dtype"          ? Field::kDType
             : name == "shape"        ? Field::kShape
             : name == "data_offsets" ? Field::kOffsets
                                      : Field::kNone;
    if (field_ == Field::kNone) return Fail("unknown field " + Quoted(name));
    const unsigned bit = 1u << static_cast<unsigned>(field_);
    if ((seen_fields_ & bit) != 0) return Fail("field " + Quoted(name) + " appears twice");
    seen_fields_ |= bit;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (seen_fields_ != kAllFields) return Fail("dtype, shape or data_offsets is missing");
      header_.entries.push_back(std::move(entry_));
      place_ = Place::kTop;
    } else if (place_ == Place::kMetadata) {
      place_ = Place::kTop;
    } else {
      place_ = Place::kFile;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || field_ == Field::kDType || field_ == Field::kNone) {
      return Misplaced("an array");
    }
    place_ = field_ == Field::kShape ? Place::kShape : Place::kOffsets;
    num_offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && num_offsets_ != 2) {
      return Fail("data_offsets must be two numbers");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    error_ = fmt::format("header is not JSON (byte {}): {}", position, error.what());
    return false;
  }

 private:
  enum class Place { kFile, kTop, kMetadata, kTensor, kShape, kOffsets };
  enum class Field : unsigned { kDType, kShape, kOffsets, kNone };
  static constexpr unsigned kAllFields = 7;

  bool Fail(const std::string& what) {
    const bool in_tensor = place_ >= Place::kTensor;
    error_ =
        in_tensor ? fmt::format("tensor {}: {}", Quoted(entry_.name), what) : "header: " + what;
    return false;
  }

  bool Misplaced(const std::string& what) {
    switch (place_) {
      case Place::kFile:
        return Fail("expected an object, found " + what);
      case Place::kTop:
        return Fail(fmt::format("{} is {}, not an object", Quoted(key_), what));
      case Place::kMetadata:
        return Fail(fmt::format("metadata {} is {}, not a string", Quoted(key_), what));
      case Place::kTensor:
        return Fail("unexpected " + what);
      case Place::kShape:
        return Fail("shape holds " + what);
      case Place::kOffsets:
        return Fail("data_offsets hold " + what);
    }
    return Fail("unexpected " + what);
  }

  HeaderEntries header_;
  std::string error_;
  Place place_ = Place::kFile;
  bool began_ = false;
  bool has_metadata_ = false;
  std::string key_;  // of the top level or of the metadata

  HeaderEntry entry_;
  Field field_ = Field::kNone;
  unsigned seen_fields_ = 0;
  int num_offsets_ = 0;
};

}  // namespace

std::string Quoted(std::string_view name) {
  constexpr size_t kShown = 120;
  std::string text = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  if (name.size() > kShown) text += "...";
  return text + "'";
}

Result<HeaderEntries> ParseHeaderJson(std::string_view json) {
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    return DataLoss(reader.error());
  }
  return std::move(reader).Take();
}

}  // namespace emberkv
