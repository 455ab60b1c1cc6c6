#include "cli/bench_report.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

std::string Number(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0); }

std::string GoalText(const Measurement& m) {
  if (!m.goal) return "";
  return fmt::format("{:.2f}{}", *m.goal, m.misses_goal() ? " missed" : "");
}

std::vector<std::string> RowOf(const Measurement& m) {
  std::vector<std::string> row = {m.name, std::to_string(m.threads), fmt::format("{} {}", Number(m.achieved), m.unit)};
  if (m.limit > 0) {
    row.push_back(fmt::format("{} {}", Number(m.limit), m.limit_name));
    row.push_back(fmt::format("{:.2f} ({:.2f}-{:.2f})", m.ratio, m.ratio_least, m.ratio_most));
    row.push_back(GoalText(m));
  } else {
    row.insert(row.end(), {"", "", ""});
  }
  if (m.rival > 0) row.push_back(fmt::format("{:.1f} x {}", m.rival_ratio, m.rival_name));
  return row;
}

using Key = std::pair<std::string, int>;

// Ratios to the limit, or to the rival where there is no limit, by measurement.
Result<std::map<Key, double>> RatiosOf(std::string_view text, const char* which) {
  const Json report = Json::parse(text, nullptr, false);
  if (report.is_discarded() || !report.is_object() || !report.contains("measurements") ||
      !report["measurements"].is_array()) {
    return InvalidArgument(fmt::format("the {} report is not what `emberkv bench ... --json` prints", which));
  }
  std::map<Key, double> ratios;
  for (const Json& m : report["measurements"]) {
    const bool has_ratio = m.is_object() && m.contains("ratio") && m["ratio"].is_number();
    const bool has_rival = m.is_object() && m.contains("rival_ratio") && m["rival_ratio"].is_number();
    if (!m.is_object() || !m.contains("name") || !m["name"].is_string() || !m.contains("threads") ||
        !m["threads"].is_number_integer() || !(has_ratio || has_rival)) {
      return InvalidArgument(fmt::format("a measurement of the {} report lacks its name, threads or ratio", which));
    }
    ratios[{m["name"].get<std::string>(), m["threads"].get<int>()}] =
        has_ratio ? m["ratio"].get<double>() : m["rival_ratio"].get<double>();
  }
  return ratios;
}

}  // namespace

std::string MachineText(const MachineFacts& facts) {
  return fmt::format("{}; {} cores, {} of memory; kernels: {}; {}; {}\n", facts.cpu, facts.cores,
                     BinarySize(facts.memory_bytes), facts.isa, facts.compiler, facts.date);
}

Json MachineJson(const MachineFacts& facts) {
  return {{"date", facts.date},       {"cpu", facts.cpu}, {"cores", facts.cores}, {"memory_bytes", facts.memory_bytes},
          {"isa", facts.isa}, {"compiler", facts.compiler}};
}

std::string MeasurementsText(std::span<const Measurement> measurements) {
  TextTable table("lrrrrll");
  table.AddRow({"", "threads", "achieved", "limit", "of the limit", "goal", "against"});
  for (const Measurement& m : measurements) table.AddRow(RowOf(m));
  std::string text = table.ToString();
  for (const Measurement& m : measurements) {
    if (!m.note.empty()) text += fmt::format("  {}: {}\n", m.name, m.note);
  }
  return text;
}

Json MeasurementsJson(std::span<const Measurement> measurements) {
  Json list = Json::array();
  for (const Measurement& m : measurements) {
    Json json = {{"name", m.name}, {"threads", m.threads}, {"unit", m.unit}, {"achieved", m.achieved}};
    if (m.limit > 0) {
      json.update({{"limit_name", m.limit_name}, {"limit", m.limit}, {"ratio", m.ratio}, {"ratio_least", m.ratio_least},
                   {"ratio_most", m.ratio_most}});
    }
    if (m.goal) json["goal"] = *m.goal;
    if (m.rival > 0) json.update({{"rival_name", m.rival_name}, {"rival", m.rival}, {"rival_ratio", m.rival_ratio}});
    if (!m.note.empty()) json["note"] = m.note;
    list.push_back(std::move(json));
  }
  return list;
}

Result<BenchComparison> CompareReports(std::string_view before, std::string_view after, double tolerance) {
  EMBERKV_ASSIGN_OR_RETURN(const auto old_ratios, RatiosOf(before, "first"));
  EMBERKV_ASSIGN_OR_RETURN(const auto new_ratios, RatiosOf(after, "second"));
  BenchComparison comparison;
  TextTable table("lrrrl");
  table.AddRow({"", "threads", "before", "after", ""});
  for (const auto& [key, ratio] : old_ratios) {
    const auto now = new_ratios.find(key);
    const std::string threads = std::to_string(key.second);
    if (now == new_ratios.end()) {
      table.AddRow({key.first, threads, fmt::format("{:.2f}", ratio), "", "not measured"});
      continue;
    }
    const bool fell = now->second < ratio * (1 - tolerance);
    comparison.has_regression = comparison.has_regression || fell;
    table.AddRow({key.first, threads, fmt::format("{:.2f}", ratio), fmt::format("{:.2f}", now->second),
                  fell ? fmt::format("fell by {:.0f} %", 100 * (1 - now->second / ratio)) : ""});
  }
  for (const auto& [key, ratio] : new_ratios) {
    if (!old_ratios.contains(key)) table.AddRow({key.first, std::to_string(key.second), "", fmt::format("{:.2f}", ratio), "new"});
  }
  comparison.text = table.ToString();
  return comparison;
}

}  // namespace emberkv
