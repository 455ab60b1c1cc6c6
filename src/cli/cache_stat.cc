#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/cache_tools.h"
#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

struct Deadlines {
  std::optional<int64_t> soonest_us;
  int64_t latest_us = 0;
  uint64_t expired = 0;  // pages past theirs, readable until their space is needed
};

Result<Deadlines> DeadlinesOf(const LocalStore& store, int64_t now_us) {
  Deadlines deadlines;
  EMBERKV_RETURN_IF_ERROR(VisitPages(store, [&](const StoreIndex::KeyedEntry& page) {
    const int64_t deadline_us = page.second.deadline_us;
    deadlines.expired += deadline_us <= now_us ? 1 : 0;
    deadlines.soonest_us = std::min(deadlines.soonest_us.value_or(deadline_us), deadline_us);
    deadlines.latest_us = std::max(deadlines.latest_us, deadline_us);
    return true;
  }));
  return deadlines;
}

double RetentionSeconds(const LocalStore& store) {
  return std::chrono::duration<double>(store.retention()).count();
}

std::string StatJson(const LocalStore& store, const StoreStats& stats, const Deadlines& deadlines,
                     int64_t now_us) {
  nlohmann::ordered_json json = {{"budget_bytes", stats.budget_bytes},
                                 {"used_bytes", stats.used_bytes},
                                 {"promised_bytes", stats.promised_bytes},
                                 {"retention_s", RetentionSeconds(store)},
                                 {"segment_bytes", store.segment_bytes()},
                                 {"pages", stats.pages},
                                 {"expired_pages", deadlines.expired},
                                 {"quarantined", stats.quarantined},
                                 {"io", store.IoDescription()}};
  if (deadlines.soonest_us) {
    json["soonest_deadline_s"] = static_cast<double>(*deadlines.soonest_us - now_us) / 1e6;
    json["latest_deadline_s"] = static_cast<double>(deadlines.latest_us - now_us) / 1e6;
  }
  return json.dump() + "\n";
}

}  // namespace

Result<std::string> DescribeStore(LocalStore& store, bool json) {
  const int64_t now_us = store.durable_now_us();
  EMBERKV_ASSIGN_OR_RETURN(const Deadlines deadlines, DeadlinesOf(store, now_us));
  const StoreStats stats = store.Stats();
  if (json) return StatJson(store, stats, deadlines, now_us);
  TextTable table("lrl");
  table.AddRow({"budget", BinarySize(stats.budget_bytes), fmt::format("pages are kept for {} after their last use", Duration(RetentionSeconds(store)))});
  table.AddRow({"used", BinarySize(stats.used_bytes),
                fmt::format("segments of {} and the index", BinarySize(store.segment_bytes()))});
  table.AddRow({"promised", BinarySize(stats.promised_bytes), "by pages before their deadline"});
  table.AddRow({"pages", Grouped(stats.pages),
                fmt::format("{} of them expired, readable until space is needed",
                            Grouped(deadlines.expired))});
  if (deadlines.soonest_us) {
    table.AddRow({"soonest deadline", "", DeadlineText(*deadlines.soonest_us, now_us)});
    table.AddRow({"latest deadline", "", DeadlineText(deadlines.latest_us, now_us)});
  }
  table.AddRow({"quarantined", Grouped(stats.quarantined), "and not stored again since"});
  table.AddRow({"I/O", "", store.IoDescription()});
  return table.ToString();
}

}  // namespace emberkv
