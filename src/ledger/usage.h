// What the lines of a ledger add up to, in all and by tenant, day or endpoint. Sums are exact.
//
// Plain values; a UsageReport is owned and used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "ledger/ledger_line.h"
#include "ledger/price_table.h"

namespace emberkv {

struct UsageSums {
  int64_t requests = 0;
  int64_t failed = 0;  // of these: status 400 and above
  int64_t prompt_tokens = 0;
  int64_t hit_tokens = 0;
  int64_t replayed_tokens = 0;
  int64_t miss_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t bytes_read = 0;
  Cost cost;

  PicoDollars saved() const { return cost.without_cache - cost.with_cache; }
  double hit_rate() const;  // of the prompt tokens; 0 without any

  // kResourceExhausted when a sum would overflow; the sums are of no use then.
  Status Add(const LedgerLine& line);

  bool operator==(const UsageSums&) const = default;
};

enum class UsageKey { kNone, kTenant, kDay, kEndpoint };  // days are UTC

class UsageReport {
 public:
  explicit UsageReport(UsageKey key) : key_(key) {}

  Status Add(const LedgerLine& line);

  const UsageSums& total() const { return total_; }
  const std::map<std::string, UsageSums>& groups() const { return groups_; }  // none by kNone

 private:
  const UsageKey key_;
  UsageSums total_;
  std::map<std::string, UsageSums> groups_;
};

}  // namespace emberkv
