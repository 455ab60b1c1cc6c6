// The fields of one JSON object of a request, read one after the other. The first failure is kept: it names the
// field, what was found and what is allowed. After a failure every read does nothing.
//
// A field that is null is as good as absent and leaves *out as it is. Owned and used by one thread; the object
// outlives it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "server/openai_error.h"

namespace emberkv {

class RequestFields {
 public:
  // `prefix` stands before the names in messages: "" or "stream_options.".
  explicit RequestFields(const nlohmann::ordered_json& object, std::string prefix = "");

  // Null where there is none. Names that were looked for are known.
  const nlohmann::ordered_json* Find(std::string_view name);

  void Read(std::string_view name, bool* out);
  void Read(std::string_view name, size_t max_bytes, std::string* out);
  void Read(std::string_view name, int64_t min, int64_t max, int64_t* out);
  void Read(std::string_view name, double min, double max, double* out);

  // A field that changes nothing here, whatever it says.
  void Ignore(std::string_view name);
  // Fields that may say one of `values`, which is what happens anyway.
  void AllowOnly(std::string_view name, std::initializer_list<nlohmann::ordered_json> values,
                 std::string_view allowed);
  // A field that may be null at most.
  void Refuse(std::string_view name, std::string_view why);
  // Every field must be known by now.
  void RefuseUnknown();

  void Fail(std::string_view name, const nlohmann::ordered_json& found, std::string_view allowed);
  void Fail(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::ordered_json& object_;
  const std::string prefix_;
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

}  // namespace emberkv
