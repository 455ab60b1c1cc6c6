#include "ledger/usage.h"

#include "ledger/utc_time.h"

namespace emberkv {
namespace {

std::string GroupOf(const LedgerLine& line, UsageKey key) {
  switch (key) {
    case UsageKey::kTenant:
      return line.tenant;
    case UsageKey::kDay:
      return UtcDay(line.time_us);
    case UsageKey::kEndpoint:
      return line.endpoint;
    case UsageKey::kNone:
      break;
  }
  return {};
}

Status AddCount(int64_t value, int64_t* sum) {
  if (__builtin_add_overflow(*sum, value, sum)) {
    return ResourceExhausted("the ledger's counts add up to more than 2^63 - 1, the most allowed");
  }
  return Status::Ok();
}

}  // namespace

double UsageSums::hit_rate() const {
  if (prompt_tokens == 0) return 0;
  return static_cast<double>(hit_tokens) / static_cast<double>(prompt_tokens);
}

Status UsageSums::Add(const LedgerLine& line) {
  EMBERKV_RETURN_IF_ERROR(AddCount(1, &requests));
  EMBERKV_RETURN_IF_ERROR(AddCount(line.status >= 400 ? 1 : 0, &failed));
  EMBERKV_RETURN_IF_ERROR(AddCount(line.prompt_tokens, &prompt_tokens));
  EMBERKV_RETURN_IF_ERROR(AddCount(line.hit_tokens, &hit_tokens));
  EMBERKV_RETURN_IF_ERROR(AddCount(line.replayed_tokens, &replayed_tokens));
  EMBERKV_RETURN_IF_ERROR(AddCount(line.miss_tokens, &miss_tokens));
  EMBERKV_RETURN_IF_ERROR(AddCount(line.completion_tokens, &completion_tokens));
  EMBERKV_RETURN_IF_ERROR(AddCount(line.bytes_read, &bytes_read));
  EMBERKV_RETURN_IF_ERROR(AddMoney(line.cost_pico_usd, &cost.with_cache));
  return AddMoney(line.cost_without_cache_pico_usd, &cost.without_cache);
}

Status UsageReport::Add(const LedgerLine& line) {
  EMBERKV_RETURN_IF_ERROR(total_.Add(line));
  if (key_ == UsageKey::kNone) return Status::Ok();
  return groups_[GroupOf(line, key_)].Add(line);
}

}  // namespace emberkv
