#include "ledger/trace_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "ledger/json_fields.h"
#include "ledger/price_table.h"
#include "ledger/utc_time.h"

namespace emberkv {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMooncakeBlockSize = 512;
constexpr int64_t kMaxBlockSize = 1 << 20;

void ReadTime(JsonFields& fields, const std::string& name, double micros_per_unit, int64_t* out) {
  constexpr const char* kAllowed = "a number from 0 to the year 9999";
  const Json* value = fields.Find(name, Need::kRequired, kAllowed);
  if (value == nullptr) return;
  const double micros = value->is_number() ? value->get<double>() * micros_per_unit : -1;
  if (!(micros >= 0 && micros <= static_cast<double>(kMaxUtcMicros))) {
    return fields.Fail(name, *value, kAllowed);
  }
  *out = std::llround(micros);
}

bool ReadBlockId(const Json& value, uint64_t* id) {
  if (value.is_number_unsigned()) {
    *id = value.get<uint64_t>();
    return true;
  }
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *id, 16);
  return error == std::errc() && rest == end && text.size() <= 16;
}

void ReadBlocks(JsonFields& fields, const std::string& name, std::vector<uint64_t>* blocks) {
  constexpr const char* kAllowed =
      "a list of ids, each an integer below 2^64 or 1 to 16 hex digits";
  const Json* value = fields.Find(name, Need::kRequired, kAllowed);
  if (value == nullptr) return;
  if (!value->is_array()) return fields.Fail(name, *value, kAllowed);
  blocks->reserve(value->size());
  for (const Json& element : *value) {
    uint64_t id = 0;
    if (!ReadBlockId(element, &id)) return fields.Fail(name, element, kAllowed);
    blocks->push_back(id);
  }
}

Result<TraceLine> ParseMooncake(const Json& object) {
  JsonFields fields(object);
  TraceLine line;
  line.block_size = kMooncakeBlockSize;
  ReadTime(fields, "timestamp", 1e3, &line.time_us);
  fields.Read("input_length", Need::kRequired, kMaxRequestTokens, &line.prompt_tokens);
  fields.Read("output_length", Need::kRequired, kMaxRequestTokens, &line.completion_tokens);
  ReadBlocks(fields, "hash_ids", &line.blocks);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  const auto complete = static_cast<size_t>(line.prompt_tokens / kMooncakeBlockSize);
  line.blocks.resize(std::min(line.blocks.size(), complete));
  return line;
}

Result<TraceLine> ParseOwn(const Json& object) {
  JsonFields fields(object);
  TraceLine line;
  ReadTime(fields, "time", 1e6, &line.time_us);
  fields.Read("tenant", Need::kOptional, &line.tenant);
  fields.Read("prompt_tokens", Need::kRequired, kMaxRequestTokens, &line.prompt_tokens);
  fields.Read("completion_tokens", Need::kRequired, kMaxRequestTokens, &line.completion_tokens);
  fields.Read("block_size", Need::kOptional, kMaxBlockSize, &line.block_size);
  if (line.block_size == 0) fields.Fail("block_size", 0, "an integer of at least 1");
  ReadBlocks(fields, "blocks", &line.blocks);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  const int64_t complete = (line.prompt_tokens + line.completion_tokens) / line.block_size;
  if (line.blocks.size() > static_cast<size_t>(complete)) {
    return InvalidArgument(
        fmt::format("blocks has {} ids; allowed: at most {}, the complete blocks of {} + {} tokens",
                    line.blocks.size(), complete, line.prompt_tokens, line.completion_tokens));
  }
  return line;
}

}  // namespace

std::string TraceJson(const TraceLine& line) {
  nlohmann::ordered_json json;
  json["time"] = static_cast<double>(line.time_us) / 1e6;
  json["tenant"] = line.tenant;
  json["prompt_tokens"] = line.prompt_tokens;
  json["completion_tokens"] = line.completion_tokens;
  json["block_size"] = line.block_size;
  auto& blocks = json["blocks"] = nlohmann::ordered_json::array();
  for (const uint64_t id : line.blocks) blocks.push_back(fmt::format("{:016x}", id));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<TraceLine> ParseTraceLine(std::string_view json) {
  EMBERKV_ASSIGN_OR_RETURN(const Json object, ParseJsonObject(json));
  return object.contains("hash_ids") ? ParseMooncake(object) : ParseOwn(object);
}

Result<TraceReader> TraceReader::Open(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(path));
  return TraceReader(std::move(lines));
}

Result<bool> TraceReader::Next(TraceLine* line) {
  std::string_view text;
  for (;;) {
    EMBERKV_ASSIGN_OR_RETURN(const bool has_line, lines_.Next(&text));
    if (!has_line) break;
    Result<TraceLine> parsed = ParseTraceLine(text);
    if (parsed.status().code() == StatusCode::kDataLoss) {
      ++torn_lines_;
      continue;
    }
    if (!parsed.ok()) return AtLine(parsed.status());
    if (parsed->block_size != block_size_.value_or(parsed->block_size)) {
      return AtLine(
          InvalidArgument(fmt::format("block_size is {}; allowed: {}, as in the first line",
                                      parsed->block_size, *block_size_)));
    }
    block_size_ = parsed->block_size;
    *line = std::move(parsed).value();
    return true;
  }
  return false;
}

}  // namespace emberkv
