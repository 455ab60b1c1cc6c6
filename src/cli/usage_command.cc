#include "cli/usage_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/parsed_option.h"
#include "cli/quantity.h"
#include "cli/text_table.h"
#include "ledger/ledger_files.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNotes =
    "Files that a ledger was rotated into (ledger.1.jsonl, ...) are read with it.\n"
    "Example:\n"
    "  emberkv usage ledger.jsonl --by tenant";

Result<UsageKey> ParseUsageKey(std::string_view text) {
  if (text == "tenant") return UsageKey::kTenant;
  if (text == "day") return UsageKey::kDay;
  if (text == "endpoint") return UsageKey::kEndpoint;
  return InvalidArgument(fmt::format("key is '{}'; allowed: tenant, day, endpoint", text));
}

const char* KeyName(UsageKey key) {
  switch (key) {
    case UsageKey::kTenant:
      return "tenant";
    case UsageKey::kDay:
      return "day";
    case UsageKey::kEndpoint:
      return "endpoint";
    case UsageKey::kNone:
      break;
  }
  return "";
}

std::string Count(int64_t count) { return Grouped(static_cast<uint64_t>(count)); }

void AddSums(const std::string& name, const UsageSums& sums, TextTable* table) {
  table->AddRow({name, Count(sums.requests), Count(sums.failed), Count(sums.prompt_tokens),
                 Count(sums.hit_tokens), fmt::format("{:.1f} %", 100 * sums.hit_rate()),
                 Count(sums.completion_tokens), DollarText(sums.cost.with_cache),
                 DollarText(sums.cost.without_cache), DollarText(sums.saved())});
}

std::string TableText(const UsageReport& report, UsageKey key, const LedgerReading& reading) {
  TextTable table("lrrrrrrrrr");
  table.AddRow({KeyName(key), "requests", "failed", "prompt tokens", "hit", "hit rate",
                "output tokens", "cost", "without cache", "saved"});
  for (const auto& [name, sums] : report.groups()) {
    AddSums(name.empty() ? "(none)" : name, sums, &table);
  }
  AddSums("total", report.total(), &table);
  std::string text = table.ToString();
  if (reading.torn_lines > 0) {
    text +=
        fmt::format("  lines that were cut off, not counted: {}\n", Grouped(reading.torn_lines));
  }
  return text;
}

Json SumsJson(const UsageSums& sums) {
  return {{"requests", sums.requests},
          {"failed", sums.failed},
          {"prompt_tokens", sums.prompt_tokens},
          {"hit_tokens", sums.hit_tokens},
          {"miss_tokens", sums.miss_tokens},
          {"hit_rate", sums.hit_rate()},
          {"replayed_tokens", sums.replayed_tokens},
          {"completion_tokens", sums.completion_tokens},
          {"bytes_read", sums.bytes_read},
          {"cost_pico_usd", sums.cost.with_cache},
          {"cost_without_cache_pico_usd", sums.cost.without_cache},
          {"saved_pico_usd", sums.saved()}};
}

std::string JsonText(const UsageReport& report, UsageKey key, const LedgerReading& reading) {
  Json json = {{"files", reading.files},
               {"torn_lines", reading.torn_lines},
               {"total", SumsJson(report.total())}};
  if (key != UsageKey::kNone) {
    Json& groups = json["groups"] = Json::array();
    for (const auto& [name, sums] : report.groups()) {
      Json group = {{KeyName(key), name}};
      group.update(SumsJson(sums));
      groups.push_back(std::move(group));
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int RunUsage(const UsageOptions& options) {
  const Result<std::string> text = UsageText(options);
  if (!text.ok()) {
    fmt::print(stderr, "emberkv usage: {}\n", text.status().message());
    return 1;
  }
  const bool written = std::fwrite(text->data(), 1, text->size(), stdout) == text->size() &&
                       std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace

Result<std::string> UsageText(const UsageOptions& options) {
  UsageReport report(options.key);
  EMBERKV_ASSIGN_OR_RETURN(
      const LedgerReading reading,
      ReadLedgers(options.ledgers, [&](const LedgerLine& line) { return report.Add(line); }));
  return options.json ? JsonText(report, options.key, reading)
                      : TableText(report, options.key, reading);
}

void AddUsageCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("usage", "Requests, tokens, hit rate and cost of a server's ledger");
  command->footer(kNotes);
  const auto options = std::make_shared<UsageOptions>();
  command->add_option("ledger", options->ledgers, "Ledger files")->required();
  AddParsedOption(*command, "--by", &options->key, &ParseUsageKey,
                  "A row for each tenant, day (UTC) or endpoint");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, exit_code] { *exit_code = RunUsage(*options); });
}

}  // namespace emberkv
