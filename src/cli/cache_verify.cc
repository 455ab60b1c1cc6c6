#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/cache_tools.h"
#include "cli/quantity.h"

namespace emberkv {
namespace {

constexpr uint64_t kBytesAtOnce = uint64_t{64} << 20;

}  // namespace

ScrubReport VerifyPages(LocalStore& store,
                        const std::function<void(const ScrubReport&)>& progress) {
  ScrubReport total;
  while (!total.is_complete) {
    const ScrubReport part = store.Scrub(kBytesAtOnce);
    total.pages += part.pages;
    total.bytes += part.bytes;
    total.corrupt += part.corrupt;
    total.failed += part.failed;
    total.is_complete = part.is_complete;
    if (progress) progress(total);
    if (part.bytes == 0 && !part.is_complete) break;  // the index cannot be read
  }
  return total;
}

std::string VerifyText(const ScrubReport& report, bool json) {
  if (json) {
    const nlohmann::ordered_json object = {{"pages", report.pages},
                                           {"bytes", report.bytes},
                                           {"corrupt", report.corrupt},
                                           {"failed", report.failed},
                                           {"complete", report.is_complete}};
    return object.dump() + "\n";
  }
  std::string text = fmt::format("{} pages, {} read and verified\n", Grouped(report.pages),
                                 BinarySize(report.bytes));
  if (report.corrupt > 0) {
    text += fmt::format("{} corrupt: quarantined, they will be computed again\n",
                        Grouped(report.corrupt));
  }
  if (report.failed > 0) text += fmt::format("{} could not be read\n", Grouped(report.failed));
  if (!report.is_complete) text += "ended early: the index cannot be read\n";
  return text;
}

}  // namespace emberkv
