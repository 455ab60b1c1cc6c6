// The fields of one JSON object, read one after the other; the first failure is kept and names the
// field, what was found and what is allowed. After a failure every read does nothing.
//
// Owned and used by one thread; the object outlives it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "base/status.h"

namespace emberkv {

// kDataLoss: no complete JSON, as the beginning of a line that a crash cut off. kInvalidArgument:
// JSON, and no object.
Result<nlohmann::json> ParseJsonObject(std::string_view text);

enum class Need { kRequired, kOptional };

class JsonFields {
 public:
  // `prefix` stands before the names in messages: "" or "peak.".
  explicit JsonFields(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // Null where there is none or a null, which is a failure where the field is required.
  const nlohmann::json* Find(const std::string& name, Need need, std::string_view allowed);

  // An optional field that is not there leaves *out as it is.
  void Read(const std::string& name, Need need, std::string* out);
  void Read(const std::string& name, Need need, int64_t max, int64_t* out);  // 0 to max

  void Fail(const std::string& name, const nlohmann::json& found, std::string_view allowed);
  const Status& status() const { return status_; }

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  Status status_;
};

}  // namespace emberkv
