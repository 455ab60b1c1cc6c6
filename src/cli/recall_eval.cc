#include "cli/recall_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

std::string Percent(const RecallScore::Tally& tally) {
  if (tally.prompts == 0) return "-";
  return fmt::format("{:.1f} %",
                     100 * static_cast<double>(tally.exact) / static_cast<double>(tally.prompts));
}

void AddTally(const std::string& name, const RecallScore::Tally& tally, TextTable* table) {
  table->AddRow({name, Grouped(static_cast<uint64_t>(tally.prompts)),
                 Grouped(static_cast<uint64_t>(tally.exact)), Percent(tally)});
}

template <typename Key>
Json TalliesJson(const char* key_name, const std::map<Key, RecallScore::Tally>& tallies) {
  Json list = Json::array();
  for (const auto& [key, tally] : tallies) {
    list.push_back({{key_name, key}, {"prompts", tally.prompts}, {"exact", tally.exact}});
  }
  return list;
}

}  // namespace

Result<std::vector<RecallPrompt>> ParseRecallPrompts(std::string_view text) {
  std::vector<RecallPrompt> prompts;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      const Json json = Json::parse(line);
      prompts.push_back({json.at("id"), json.at("tokens"), json.at("place"), json.at("prompt"),
                         json.at("expected"), json.at("expected_ids")});
    } catch (const Json::exception& error) {
      return InvalidArgument(fmt::format("line {}: {}", line_number, error.what()));
    }
    if (prompts.back().expected_ids.empty()) {
      return InvalidArgument(
          fmt::format("line {}: expected_ids is empty; allowed: at least one id", line_number));
    }
  }
  return prompts;
}

std::string PlaceGroup(std::string_view place) {
  const size_t colon = place.find(':');
  if (colon == std::string_view::npos) return std::string(place);
  return std::string(place.substr(0, colon)) + ":*";
}

void RecallScore::Add(const RecallPrompt& prompt, bool is_exact) {
  for (Tally* tally :
       {&total_, &by_length_[prompt.tokens], &by_place_[PlaceGroup(prompt.place)]}) {
    ++tally->prompts;
    tally->exact += is_exact ? 1 : 0;
  }
}

std::string RecallScore::Table() const {
  TextTable table("lrrr");
  table.AddRow({"prompt tokens", "prompts", "exact", ""});
  for (const auto& [tokens, tally] : by_length_) {
    AddTally(Grouped(static_cast<uint64_t>(tokens)), tally, &table);
  }
  table.AddRow({});
  table.AddRow({"place of the fact", "prompts", "exact", ""});
  for (const auto& [place, tally] : by_place_) AddTally(place, tally, &table);
  table.AddRow({});
  AddTally("all", total_, &table);
  return table.ToString();
}

std::string RecallScore::SummaryLine(double seconds) const {
  const Json json = {{"event", "summary"},
                     {"prompts", total_.prompts},
                     {"exact", total_.exact},
                     {"by_length", TalliesJson("tokens", by_length_)},
                     {"by_place", TalliesJson("place", by_place_)},
                     {"seconds", seconds}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace emberkv
