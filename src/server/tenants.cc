#include "server/tenants.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "base/duration.h"
#include "base/mapped_file.h"
#include "engine/engine.h"
#include "ledger/json_fields.h"

namespace emberkv {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{4} << 20;
constexpr int64_t kMaxLimit = 1'000'000'000'000;
constexpr int64_t kMaxStoredBytes = int64_t{1} << 60;
constexpr size_t kMaxNameLength = 64;
constexpr size_t kHashDigits = 64;
constexpr std::string_view kKeyPrefix = "ember-";

std::string Hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool IsHash(std::string_view text) {
  return text.size() == kHashDigits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsTenantName(std::string_view name) {
  // "local" is what `emberkv cache` calls the user without a name.
  return !name.empty() && name.size() <= kMaxNameLength && name != "local" &&
         std::ranges::all_of(name, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
         });
}

Status RefuseUnknown(const json& object, const std::string& where, const std::set<std::string>& known) {
  for (const auto& [name, value] : object.items()) {
    if (known.contains(name)) continue;
    return InvalidArgument(
        fmt::format("{}{}: no such field; allowed: {}", where, name, fmt::join(known, ", ")));
  }
  return Status::Ok();
}

// From a second to kMaxRetention.
std::optional<std::chrono::microseconds> ParseRetention(std::string_view text) {
  const Result<std::chrono::microseconds> retention = ParseDuration(text);
  if (!retention.ok() || *retention < std::chrono::seconds(1) || *retention > kMaxRetention) return std::nullopt;
  return *retention;
}

Status ReadLimits(const json& object, const std::string& where, TenantLimits* limits) {
  EMBERKV_RETURN_IF_ERROR(RefuseUnknown(
      object, where, {"max_concurrent", "max_stored_bytes", "retention", "tokens_per_minute"}));
  JsonFields fields(object, where);
  fields.Read("max_concurrent", Need::kOptional, kMaxLimit, &limits->max_concurrent);
  fields.Read("tokens_per_minute", Need::kOptional, kMaxLimit, &limits->tokens_per_minute);
  fields.Read("max_stored_bytes", Need::kOptional, kMaxStoredBytes, &limits->max_stored_bytes);
  constexpr std::string_view kAllowed = "a text like \"24h\", with s, m, h or d, from 1s to 366d";
  if (const json* value = fields.Find("retention", Need::kOptional, kAllowed)) {
    const auto retention =
        value->is_string() ? ParseRetention(value->get_ref<const std::string&>()) : std::nullopt;
    if (!retention) fields.Fail("retention", *value, kAllowed);
    limits->retention = retention.value_or(limits->retention);
  }
  return fields.status();
}

Status ReadKeys(const json& object, const std::string& where, std::vector<std::string>* hashes) {
  JsonFields fields(object, where);
  constexpr std::string_view kAllowed = "a list of SHA-256 hashes of keys, 64 lower-case hex digits each";
  const json* keys = fields.Find("keys", Need::kRequired, kAllowed);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  if (!keys->is_array()) {
    fields.Fail("keys", *keys, kAllowed);
    return fields.status();
  }
  for (const json& key : *keys) {
    // What is not a hash may be a key that somebody put here by mistake: it is not repeated.
    if (!key.is_string() || !IsHash(key.get_ref<const std::string&>())) {
      return InvalidArgument(
          fmt::format("{}keys holds something that is not a hash; allowed: {}", where, kAllowed));
    }
    hashes->push_back(key.get<std::string>());
  }
  return Status::Ok();
}

Status ReadTenant(const json& object, const std::string& where, Tenant* tenant,
                  std::vector<std::string>* hashes) {
  if (!object.is_object()) {
    return InvalidArgument(fmt::format("{} is {}; allowed: an object", where, ShowJson(object)));
  }
  const std::string prefix = where + ".";
  EMBERKV_RETURN_IF_ERROR(RefuseUnknown(object, prefix, {"keys", "limits", "name", "operator"}));
  JsonFields fields(object, prefix);
  fields.Read("name", Need::kRequired, &tenant->name);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  if (!IsTenantName(tenant->name)) {
    fields.Fail("name", object["name"], "1 to 64 letters, digits, '-', '_' and '.', and not \"local\"");
  }
  constexpr std::string_view kBool = "true or false";
  if (const json* value = fields.Find("operator", Need::kOptional, kBool)) {
    if (value->is_boolean()) {
      tenant->is_operator = value->get<bool>();
    } else {
      fields.Fail("operator", *value, kBool);
    }
  }
  constexpr std::string_view kObject = "an object";
  const json* limits = fields.Find("limits", Need::kOptional, kObject);
  if (limits && !limits->is_object()) fields.Fail("limits", *limits, kObject);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  if (limits) EMBERKV_RETURN_IF_ERROR(ReadLimits(*limits, prefix + "limits.", &tenant->limits));
  return ReadKeys(object, prefix, hashes);
}

Result<TenantTable> ReadTable(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  Result<TenantTable> table = TenantTable::Parse(text);
  if (!table.ok()) return table.status().WithContext(path);
  return table;
}

}  // namespace

std::string ApiKeyHash(std::string_view key) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> hash;
  ::SHA256(reinterpret_cast<const uint8_t*>(key.data()), key.size(), hash.data());
  return Hex(hash);
}

Result<std::string> NewApiKey() {
  std::array<uint8_t, 32> bytes;
  if (::RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return Unavailable("the system gave no random bytes for a key");
  }
  return std::string(kKeyPrefix) + Hex(bytes);
}

Result<TenantTable> TenantTable::Parse(std::string_view text) {
  EMBERKV_ASSIGN_OR_RETURN(const json object, ParseJsonObject(text));
  EMBERKV_RETURN_IF_ERROR(RefuseUnknown(object, "", {"tenants"}));
  JsonFields fields(object);
  constexpr std::string_view kAllowed = "a list of tenants, one at least";
  const json* list = fields.Find("tenants", Need::kRequired, kAllowed);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  if (!list->is_array() || list->empty()) {
    fields.Fail("tenants", *list, kAllowed);
    return fields.status();
  }
  TenantTable table;
  std::set<std::string> names;
  std::set<std::string> seen;
  for (const json& entry : *list) {
    Tenant tenant;
    std::vector<std::string> hashes;
    EMBERKV_RETURN_IF_ERROR(ReadTenant(entry, fmt::format("tenants[{}]", names.size()), &tenant, &hashes));
    if (!names.insert(tenant.name).second) {
      return InvalidArgument(
          fmt::format("tenant '{}' is there twice; give it several keys instead", tenant.name));
    }
    for (std::string& hash : hashes) {
      if (!seen.insert(hash).second) {
        return InvalidArgument(fmt::format("a key of tenant '{}' is there twice", tenant.name));
      }
      table.keys_.emplace_back(std::move(hash), table.tenants_.size());
    }
    table.tenants_.push_back(std::make_shared<const Tenant>(std::move(tenant)));
  }
  return table;
}

std::shared_ptr<const Tenant> TenantTable::Find(std::string_view key) const {
  const std::string hash = ApiKeyHash(key);
  std::shared_ptr<const Tenant> found;
  for (const auto& [candidate, tenant] : keys_) {
    if (::CRYPTO_memcmp(candidate.data(), hash.data(), kHashDigits) == 0) found = tenants_[tenant];
  }
  return found;
}

Tenants::Tenants() : local_(std::make_shared<const Tenant>(Tenant{"", true, {}})) {}

Tenants::Tenants(std::string path, TenantTable table)
    : path_(std::move(path)), table_(std::make_shared<const TenantTable>(std::move(table))) {}

Result<std::unique_ptr<Tenants>> Tenants::Load(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(TenantTable table, ReadTable(path));
  return std::unique_ptr<Tenants>(new Tenants(path, std::move(table)));
}

Result<std::shared_ptr<const Tenant>> Tenants::Authenticate(std::string_view authorization) const {
  if (!needs_keys()) return local_;
  constexpr std::string_view kScheme = "bearer ";
  const bool is_bearer =
      authorization.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(), [](char expected, char c) {
        return expected == std::tolower(static_cast<unsigned char>(c));
      });
  if (!is_bearer) {
    return InvalidArgument("this server needs an API key: send the header \"Authorization: Bearer KEY\"");
  }
  std::shared_ptr<const Tenant> tenant = table()->Find(authorization.substr(kScheme.size()));
  if (!tenant) return InvalidArgument("this API key is not known here");
  return tenant;
}

Status Tenants::Reload() {
  if (!needs_keys()) return Status::Ok();
  EMBERKV_ASSIGN_OR_RETURN(TenantTable read, ReadTable(path_));
  const auto table = std::make_shared<const TenantTable>(std::move(read));
  const std::lock_guard lock(mutex_);
  table_ = table;
  return Status::Ok();
}

size_t Tenants::num_tenants() const { return needs_keys() ? table()->num_tenants() : 1; }

std::shared_ptr<const TenantTable> Tenants::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

}  // namespace emberkv
