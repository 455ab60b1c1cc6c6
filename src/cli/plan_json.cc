#include <nlohmann/json.hpp>

#include "cli/plan.h"
#include "layout/scratch.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

const char* CandidateName(CandidateRole role) {
  switch (role) {
    case CandidateRole::kNone:
      return "none";
    case CandidateRole::kMakes:
      return "makes";
    case CandidateRole::kFilters:
      return "filters";
  }
  return "none";
}

Json LayersJson(const CacheLayout& layout) {
  Json layers = Json::array();
  for (const LayerPlan& layer : layout.layers) {
    Json entry = {{"layer", layer.layer},
                  {"role", LayerRoleName(layer.role)},
                  {"ratio", layer.ratio},
                  {"candidate_role", CandidateName(layer.candidate)},
                  {"has_engram", layer.engram >= 0}};
    if (layer.ratio > 0) {
      entry["kv_source_layer"] = layout.sources[static_cast<size_t>(layer.kv_source)].layer;
      entry["index_source_layer"] = layer.index_source;
    }
    layers.push_back(std::move(entry));
  }
  return layers;
}

Json BytesJson(const Plan& plan) {
  const CacheLayout& layout = plan.layout;
  return {{"per_token", layout.bytes_per_token()},
          {"main_kv_per_token", layout.main_bytes_per_token()},
          {"index_key_per_token", layout.key_bytes_per_token()},
          {"main_kv_row", layout.kv_row_bytes},
          {"index_key_row", layout.key_row_bytes},
          {"window_row", layout.window_row_bytes},
          {"block_size", layout.block_size},
          {"page", layout.page_bytes},
          {"windows_per_sequence", layout.window_bytes()},
          {"encoder_checkpoint", layout.encoder_window_bytes()},
          {"compressor_tails", layout.tail_bytes},
          {"scratch_per_512_row_step", StepScratch(plan.config, layout, 512, 1).total()}};
}

Json MemoryJson(const Plan& plan) {
  Json list = Json::array();
  for (const SessionMemory& memory : plan.memory) {
    list.push_back({{"tokens", memory.tokens},
                    {"pages", memory.pages},
                    {"global_bytes", memory.global_bytes},
                    {"device_bytes", SessionBytes(memory, Tier::kDevice)},
                    {"host_bytes", SessionBytes(memory, Tier::kHost)},
                    {"ssd_bytes", SessionBytes(memory, Tier::kSsd)}});
  }
  return list;
}

Json TiersJson(const Plan& plan) {
  Json list = Json::array();
  for (const TierPlan& tier : plan.tiers) {
    Json entry = {{"tier", tier.name}, {"session_bytes", tier.session_bytes}};
    if (tier.size_bytes) {
      entry["size_bytes"] = *tier.size_bytes;
      entry["sessions"] = tier.fit.sessions;
      entry["tokens"] = tier.fit.tokens;
    }
    if (tier.sessions_bytes) entry["wanted_sessions_bytes"] = *tier.sessions_bytes;
    list.push_back(std::move(entry));
  }
  return list;
}

Json DecodeJson(const DecodeCost& cost) {
  Json terms = Json::array();
  for (const OperationTerm& term : cost.terms) {
    terms.push_back({{"name", term.name},
                     {"weight", term.weight},
                     {"operations", term.operations},
                     {"weighted", term.weighted()}});
  }
  return {{"tokens", cost.tokens}, {"weighted_total", TotalWeighted(cost.terms)}, {"terms", terms}};
}

Json GenerationsJson(const Plan& plan) {
  Json list = Json::array();
  for (const Generation& generation : plan.generations) {
    Json rows = Json::array();
    for (const RowGeometry& geometry : generation.rows) {
      rows.push_back({{"what", geometry.what},
                      {"layers", geometry.layers},
                      {"row_bytes", geometry.row_bytes()},
                      {"tokens_per_row", geometry.tokens_per_row}});
    }
    list.push_back({{"name", generation.name},
                    {"source", generation.source},
                    {"bytes_per_token", generation.bytes_per_token()},
                    {"rows", std::move(rows)}});
  }
  return list;
}

}  // namespace

std::string PlanJson(const Plan& plan) {
  const GenerationRatios ratios = RatiosOf(plan);
  const double decode_ratio =
      TotalWeighted(plan.decode_long.terms) / TotalWeighted(plan.decode_short.terms);
  Json json = {
      {"config", plan.config_path},
      {"num_layers", plan.layout.num_layers()},
      {"encoder_layers", plan.layout.encoder_layers()},
      {"decoder_begin", plan.layout.decoder_begin ? Json(*plan.layout.decoder_begin) : Json()},
      {"layers", LayersJson(plan.layout)},
      {"bytes", BytesJson(plan)},
      {"context", plan.context},
      {"memory", MemoryJson(plan)},
      {"tiers", TiersJson(plan)},
      {"retention",
       {{"hours", kRetentionHours},
        {"tokens_per_second", plan.tokens_per_second},
        {"bytes", plan.retained_bytes}}},
      {"decode",
       {{"short", DecodeJson(plan.decode_short)},
        {"long", DecodeJson(plan.decode_long)},
        {"ratio", decode_ratio}}},
      {"prefill",
       {{"token_layers", plan.prefill.computed},
        {"token_layers_full", plan.prefill.full},
        {"share", plan.prefill.share()}}},
      {"generations", GenerationsJson(plan)},
      {"ratios",
       {{"v1_over_this", ratios.kv_of_v1},
        {"v4_flash_over_this", ratios.kv_of_v4},
        {"v4_flash_ssd_over_this", ratios.stored_of_v4}}}};
  if (plan.sessions) json["wanted_sessions"] = *plan.sessions;
  // A path may hold any bytes; what is not UTF-8 is replaced rather than refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace emberkv
