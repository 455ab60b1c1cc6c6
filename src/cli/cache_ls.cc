#include <nlohmann/json.hpp>

#include "cli/cache_tools.h"
#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

constexpr size_t kKeyDigits = 16;  // of 64: enough to tell keys apart

// A head that cannot be read is for `verify` to judge; the list goes on.
std::string ProvenanceOf(LocalStore& store, const StoreIndex::KeyedEntry& page) {
  const Result<PageHead> head = store.ReadHead(page);
  return head.ok() ? ProvenanceText(head->provenance) : "unreadable";
}

std::string PageJson(const StoreIndex::KeyedEntry& page, const std::string& provenance,
                     int64_t now_us) {
  const auto& [key, entry] = page;
  const nlohmann::ordered_json json = {
      {"key", DigestText(key)},
      {"tokens", entry.num_tokens},
      {"provenance", provenance},
      {"deadline_s", static_cast<double>(entry.deadline_us - now_us) / 1e6},
      {"bytes", entry.payload_bytes},
      {"tenant", TenantText(entry.tenant)}};
  return json.dump() + "\n";
}

}  // namespace

Result<std::string> ListPages(LocalStore& store, const ListOptions& options) {
  const int64_t now_us = store.durable_now_us();
  std::string lines;
  TextTable table("lrlrr");
  table.AddRow({"key", "tokens", "provenance", "deadline", "bytes"});
  size_t count = 0;
  EMBERKV_RETURN_IF_ERROR(VisitPages(store, [&](const StoreIndex::KeyedEntry& page) {
    if (options.limit != 0 && count == options.limit) return false;
    ++count;
    const std::string provenance = ProvenanceOf(store, page);
    if (options.json) {
      lines += PageJson(page, provenance, now_us);
    } else {
      table.AddRow({DigestText(page.first).substr(0, kKeyDigits), Grouped(page.second.num_tokens),
                    provenance, DeadlineText(page.second.deadline_us, now_us),
                    Grouped(page.second.payload_bytes)});
    }
    return true;
  }));
  if (options.json) return lines;
  return count == 0 ? std::string("the store is empty\n") : table.ToString();
}

}  // namespace emberkv
