#include "ledger/json_fields.h"

#include <fmt/format.h>

namespace emberkv {

using Json = nlohmann::json;

Result<Json> ParseJsonObject(std::string_view text) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return DataLoss("not complete JSON");
  if (!value.is_object()) {
    return InvalidArgument(fmt::format("the line is {}; allowed: an object", ShowJson(value)));
  }
  return value;
}

const Json* JsonFields::Find(const std::string& name, Need need, std::string_view allowed) {
  if (!status_.ok()) return nullptr;
  const auto found = object_.find(name);
  if (found != object_.end() && !found->is_null()) return &*found;
  if (need == Need::kRequired) {
    status_ = InvalidArgument(fmt::format("{}{} is missing; allowed: {}", prefix_, name, allowed));
  }
  return nullptr;
}

void JsonFields::Read(const std::string& name, Need need, std::string* out) {
  const Json* value = Find(name, need, "a text");
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(name, *value, "a text");
  *out = value->get_ref<const std::string&>();
}

void JsonFields::Read(const std::string& name, Need need, int64_t max, int64_t* out) {
  const Json* value = Find(name, need, "an integer");
  if (value == nullptr) return;
  // A number beyond 64 bits is a float by now; unsigned is what nlohmann calls integers from 0.
  if (!value->is_number_unsigned() || value->get<uint64_t>() > static_cast<uint64_t>(max)) {
    return Fail(name, *value, fmt::format("an integer from 0 to {}", max));
  }
  *out = value->get<int64_t>();
}

void JsonFields::Fail(const std::string& name, const Json& found, std::string_view allowed) {
  if (!status_.ok()) return;
  status_ = InvalidArgument(
      fmt::format("{}{} is {}; allowed: {}", prefix_, name, ShowJson(found), allowed));
}

}  // namespace emberkv
