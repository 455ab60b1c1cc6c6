#include "ledger/ledger_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ledger/json_fields.h"
#include "ledger/price_table.h"
#include "ledger/utc_time.h"

namespace emberkv {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 60;

// Every field but the time, in the order of the file. `visitor` writes or reads.
template <class Line, class Visitor>
void VisitFields(Line& line, Visitor visitor) {
  visitor("request_id", line.request_id);
  visitor("tenant", line.tenant);
  visitor("endpoint", line.endpoint);
  visitor("model", line.model);
  visitor("status", line.status, Need::kOptional, 999);
  visitor("finish_reason", line.finish_reason);
  visitor("prompt_tokens", line.prompt_tokens, Need::kRequired, kMaxRequestTokens);
  visitor("hit_tokens", line.hit_tokens, Need::kRequired, kMaxRequestTokens);
  visitor("replayed_tokens", line.replayed_tokens, Need::kOptional, kMaxRequestTokens);
  visitor("miss_tokens", line.miss_tokens, Need::kRequired, kMaxRequestTokens);
  visitor("completion_tokens", line.completion_tokens, Need::kRequired, kMaxRequestTokens);
  visitor("resident_blocks", line.resident_blocks, Need::kOptional, kMaxRequestTokens);
  visitor("store_blocks", line.store_blocks, Need::kOptional, kMaxRequestTokens);
  visitor("bytes_read", line.bytes_read, Need::kOptional, kMaxCount);
  visitor("queue_us", line.queue_us, Need::kOptional, kMaxCount);
  visitor("restore_us", line.restore_us, Need::kOptional, kMaxCount);
  visitor("ttft_us", line.ttft_us, Need::kOptional, kMaxCount);
  visitor("total_us", line.total_us, Need::kOptional, kMaxCount);
  visitor("replayed_at", line.replayed_at, Need::kOptional, kMaxRequestTokens);
  visitor("miss_reason", line.miss_reason);
  visitor("cost_pico_usd", line.cost_pico_usd, Need::kRequired, kMaxRequestCost);
  visitor("cost_without_cache_pico_usd", line.cost_without_cache_pico_usd, Need::kRequired,
          kMaxRequestCost);
}

struct FieldWriter {
  nlohmann::ordered_json& json;

  void operator()(const char* name, const std::string& text) const { json[name] = text; }
  void operator()(const char* name, int64_t count, Need, int64_t) const { json[name] = count; }
};

struct FieldLoader {
  JsonFields& fields;

  void operator()(const char* name, std::string& text) const {
    fields.Read(name, Need::kOptional, &text);
  }
  void operator()(const char* name, int64_t& count, Need need, int64_t max) const {
    fields.Read(name, need, max, &count);
  }
};

}  // namespace

std::string LedgerJson(const LedgerLine& line) {
  nlohmann::ordered_json json;
  json["time"] = UtcText(line.time_us);
  VisitFields(line, FieldWriter{json});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<LedgerLine> ParseLedgerLine(std::string_view json) {
  EMBERKV_ASSIGN_OR_RETURN(const nlohmann::json object, ParseJsonObject(json));
  JsonFields fields(object);
  LedgerLine line;
  std::string time;
  fields.Read("time", Need::kRequired, &time);
  EMBERKV_RETURN_IF_ERROR(fields.status());
  EMBERKV_ASSIGN_OR_RETURN(line.time_us, ParseUtcText(time));
  VisitFields(line, FieldLoader{fields});
  EMBERKV_RETURN_IF_ERROR(fields.status());
  if (line.hit_tokens + line.miss_tokens != line.prompt_tokens) {
    return InvalidArgument(fmt::format(
        "hit_tokens {} + miss_tokens {} is not prompt_tokens {}; allowed: counts that add up",
        line.hit_tokens, line.miss_tokens, line.prompt_tokens));
  }
  return line;
}

}  // namespace emberkv
