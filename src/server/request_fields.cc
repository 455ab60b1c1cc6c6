#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace emberkv {

using Json = nlohmann::ordered_json;

RequestFields::RequestFields(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {
  if (object_.is_object()) return;
  const std::string what = prefix_.empty() ? "the body" : prefix_.substr(0, prefix_.size() - 1);
  Fail(InvalidRequest(prefix_.empty() ? "" : what,
                      fmt::format("{} is {}; it must be an object", what, ShowJson(object_))));
}

const Json* RequestFields::Find(std::string_view name) {
  known_.emplace(name);
  if (error_) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void RequestFields::Read(std::string_view name, bool* out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(name, *value, "allowed: true, false");
  *out = value->get<bool>();
}

void RequestFields::Read(std::string_view name, size_t max_bytes, std::string* out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string() || value->get_ref<const std::string&>().size() > max_bytes) {
    return Fail(name, *value, fmt::format("allowed: a text of at most {} bytes", max_bytes));
  }
  *out = value->get<std::string>();
}

void RequestFields::Read(std::string_view name, int64_t min, int64_t max, int64_t* out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  // An unsigned number beyond int64 would come out negative.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    return Fail(name, *value, fmt::format("allowed: an integer from {} to {}", min, max));
  }
  *out = value->get<int64_t>();
}

void RequestFields::Read(std::string_view name, double min, double max, double* out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max)) {
    return Fail(name, *value, fmt::format("allowed: a number from {} to {}", min, max));
  }
  *out = value->get<double>();
}

void RequestFields::Ignore(std::string_view name) { known_.emplace(name); }

void RequestFields::AllowOnly(std::string_view name, std::initializer_list<Json> values,
                              std::string_view allowed) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (std::find(values.begin(), values.end(), *value) == values.end()) Fail(name, *value, allowed);
}

void RequestFields::Refuse(std::string_view name, std::string_view why) {
  const Json* value = Find(name);
  if (value != nullptr) Fail(name, *value, why);
}

void RequestFields::RefuseUnknown() {
  if (error_) return;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) return Fail(name, value, "this field is not known");
  }
}

void RequestFields::Fail(std::string_view name, const Json& found, std::string_view allowed) {
  const std::string place = fmt::format("{}{}", prefix_, name);
  Fail(InvalidRequest(place, fmt::format("{} is {}; {}", place, ShowJson(found), allowed)));
}

void RequestFields::Fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

}  // namespace emberkv
