#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/cache_tools.h"
#include "cli/model_options.h"
#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

// Pages that tell why the first missing block is not there.
struct Neighbours {
  size_t continuations = 0;      // stored after the same text, with other tokens
  std::vector<int32_t> closest;  // tokens of that with the longest common beginning
  size_t common = 0;             // its length
  size_t elsewhere = 0;          // pages with the same tokens and another key
};

struct Explanation {
  PrefixForecast forecast;
  int64_t block_size = 0;
  int64_t prompt_tokens = 0;
  Neighbours neighbours;
  size_t stored_behind = 0;  // blocks behind the first missing one

  bool is_missing_any() const { return forecast.num_found < forecast.blocks.size(); }
  int64_t first_missing_token() const {
    return static_cast<int64_t>(forecast.num_found) * block_size;
  }
};

// Reads the head of every page: a walk through the whole store.
Result<Neighbours> FindNeighbours(LocalStore& store, const BlockIdentity& missing) {
  Neighbours neighbours;
  EMBERKV_RETURN_IF_ERROR(VisitPages(store, [&](const StoreIndex::KeyedEntry& page) {
    if (page.second.num_tokens != missing.tokens.size()) return true;
    const Result<PageHead> head = store.ReadHead(page);
    if (!head.ok()) return true;
    const auto differs = std::ranges::mismatch(head->tokens, missing.tokens).in1;
    const auto common = static_cast<size_t>(differs - head->tokens.begin());
    if (common == missing.tokens.size()) {
      ++neighbours.elsewhere;
    } else if (head->parent == missing.parent) {
      ++neighbours.continuations;
      if (neighbours.closest.empty() || common > neighbours.common) {
        neighbours.closest = head->tokens;
        neighbours.common = common;
      }
    }
    return true;
  }));
  return neighbours;
}

Result<Explanation> Explain(LocalStore& store, const PrefixProbe& model,
                            std::span<const int32_t> prompt, const ExplainOptions& options) {
  Explanation explanation;
  explanation.forecast = model.Forecast(&store, prompt, options.replay);
  explanation.block_size = model.layout().block_size;
  explanation.prompt_tokens = static_cast<int64_t>(prompt.size());
  const PrefixForecast& forecast = explanation.forecast;
  if (!explanation.is_missing_any()) return explanation;
  explanation.stored_behind =
      static_cast<size_t>(std::ranges::count_if(forecast.tiers, [](auto tier) { return tier.has_value(); })) -
      forecast.num_found;
  EMBERKV_ASSIGN_OR_RETURN(
      explanation.neighbours,
      FindNeighbours(store, forecast.blocks[forecast.num_found]));
  return explanation;
}

std::string StateOf(const PrefixForecast& forecast, size_t block) {
  if (block < forecast.num_found) return "store";
  return forecast.tiers[block] ? "store, unreachable" : "missing";
}

// What is missing has no provenance yet.
std::string ProvenanceOf(const PrefixForecast& forecast, size_t block) {
  return forecast.tiers[block] ? ProvenanceText(forecast.blocks[block].provenance) : "";
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string TokensText(const PrefixProbe& model, std::span<const int32_t> tokens, size_t at) {
  constexpr size_t kShown = 6;
  return Quoted(model.Decode(tokens.subspan(at, std::min(kShown, tokens.size() - at))));
}

// One word: what the store remembers of the block, or else what its other pages tell.
std::string ReasonOf(const Explanation& explanation) {
  const PrefixForecast& forecast = explanation.forecast;
  if (!explanation.is_missing_any()) return forecast.blocks.empty() ? "too short" : "none";
  if (forecast.miss_reason != GetOutcomeName(GetOutcome::kNeverSeen)) return std::string(forecast.miss_reason);
  if (explanation.stored_behind > 0) return "lost";
  if (explanation.neighbours.continuations > 0) return "diverges";
  if (explanation.neighbours.elsewhere > 0) return "other identity";
  return "never seen";
}

std::string WhyText(const Explanation& explanation, const PrefixProbe& model, ReplayMode replay) {
  if (!MayReuse(replay)) return "a run with full replay reuses nothing";
  const std::string reason = ReasonOf(explanation);
  if (reason == "too short") {
    return fmt::format("the prompt has no full block of {} tokens before its last token",
                       explanation.block_size);
  }
  if (reason == "none") return "every full block is there";
  const Neighbours& near = explanation.neighbours;
  if (reason == "lost") {
    return fmt::format("the block expired or was quarantined: {} blocks behind it are still there",
                       explanation.stored_behind);
  }
  if (reason == "diverges") {
    const auto& block = explanation.forecast.blocks[explanation.forecast.num_found];
    return fmt::format(
        "the text diverges at token {}: the prompt has {} where {} goes on with {}",
        Grouped(static_cast<uint64_t>(explanation.first_missing_token()) + near.common),
        TokensText(model, block.tokens, near.common),
        near.continuations == 1 ? "what is stored" : "the closest of what is stored",
        TokensText(model, near.closest, near.common));
  }
  if (reason == "other identity") {
    return fmt::format(
        "other identity: {} pages hold the same tokens, but for another model, tokenizer, layout "
        "or "
        "numerics, after other text, or with other provenance",
        near.elsewhere);
  }
  return reason;
}

std::string BlocksTable(const Explanation& explanation) {
  const PrefixForecast& forecast = explanation.forecast;
  TextTable table("llll");
  table.AddRow({"blocks", "tokens", "where", "provenance"});
  for (size_t begin = 0, end; begin < forecast.blocks.size(); begin = end) {
    const std::string state = StateOf(forecast, begin);
    const std::string provenance = ProvenanceOf(forecast, begin);
    for (end = begin + 1; end < forecast.blocks.size(); ++end) {
      if (StateOf(forecast, end) != state || ProvenanceOf(forecast, end) != provenance) break;
    }
    const auto block_size = static_cast<uint64_t>(explanation.block_size);
    table.AddRow(
        {fmt::format("{} to {}", Grouped(begin), Grouped(end - 1)),
         fmt::format("{} to {}", Grouped(begin * block_size), Grouped(end * block_size - 1)), state,
         provenance});
  }
  return forecast.blocks.empty() ? "" : table.ToString() + "\n";
}

std::string Text(const Explanation& explanation, const PrefixProbe& model, ReplayMode replay) {
  const ResumePlan& resume = explanation.forecast.resume;
  const auto count = [](int64_t tokens) { return Grouped(static_cast<uint64_t>(tokens)); };
  return fmt::format(
      "{} tokens, {} full blocks of {} that can be reused\n\n{}{}\n"
      "a run would reuse {} tokens, replay {} of them and compute {} ({} replay, {} pages)\n",
      count(explanation.prompt_tokens), explanation.forecast.blocks.size(), explanation.block_size,
      BlocksTable(explanation), WhyText(explanation, model, replay), count(resume.hit),
      count(resume.replayed()), count(explanation.prompt_tokens - resume.hit),
      ReplayModeName(replay), ProvenanceText(explanation.forecast.provenance));
}

std::string JsonText(const Explanation& explanation, const PrefixProbe& model, ReplayMode replay) {
  const PrefixForecast& forecast = explanation.forecast;
  Json json = {{"prompt_tokens", explanation.prompt_tokens},
               {"block_size", explanation.block_size},
               {"hit_tokens", forecast.resume.hit},
               {"replayed_tokens", forecast.resume.replayed()},
               {"computed_tokens", explanation.prompt_tokens - forecast.resume.hit},
               {"replay", ReplayModeName(replay)},
               {"provenance", ProvenanceText(forecast.provenance)},
               {"miss_reason", ReasonOf(explanation)},
               {"why", WhyText(explanation, model, replay)}};
  if (ReasonOf(explanation) == "diverges") {
    json["diverges_at_token"] =
        explanation.first_missing_token() + static_cast<int64_t>(explanation.neighbours.common);
  }
  json["blocks"] = Json::array();
  for (size_t i = 0; i < forecast.blocks.size(); ++i) {
    Json block = {{"key", DigestText(forecast.blocks[i].hash)}, {"where", StateOf(forecast, i)}};
    if (forecast.tiers[i]) block["provenance"] = ProvenanceOf(forecast, i);
    json["blocks"].push_back(std::move(block));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<std::string> ExplainText(LocalStore& store, const PrefixProbe& model, std::string_view text,
                                const ExplainOptions& options) {
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, EncodeFirst(model, text));
  EMBERKV_ASSIGN_OR_RETURN(const Explanation explanation, Explain(store, model, prompt, options));
  return options.json ? JsonText(explanation, model, options.replay)
                      : Text(explanation, model, options.replay);
}

}  // namespace emberkv
