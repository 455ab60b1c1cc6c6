#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/cache_tools.h"
#include "cli/quantity.h"

namespace emberkv {

std::string SweepPages(LocalStore& store, bool json) {
  const uint64_t swept = store.Sweep();
  const StoreStats stats = store.Stats();
  if (json) {
    const nlohmann::ordered_json object = {{"swept", swept},
                                           {"pages", stats.pages},
                                           {"promised_bytes", stats.promised_bytes},
                                           {"used_bytes", stats.used_bytes}};
    return object.dump() + "\n";
  }
  return fmt::format("{} expired pages swept; {} pages stay, {} promised\n", Grouped(swept),
                     Grouped(stats.pages), BinarySize(stats.promised_bytes));
}

}  // namespace emberkv
