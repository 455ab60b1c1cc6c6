#include "cli/bench_model.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "cli/bench_report.h"
#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Measurement> MeasurementsOf(const ModelReport& report) {
  std::vector<Measurement> all;
  for (const DecodePoint& point : report.decode) all.push_back(point.of_dram);
  for (const PrefillPoint& point : report.prefill) all.push_back(point.of_bf16);
  return all;
}

// A line a stage, a column a context.
std::string StagesText(const std::vector<DecodePoint>& points) {
  TextTable table("l" + std::string(points.size(), 'r'));
  std::vector<std::string> head = {"ms a token, at"}, total = {"all"};
  for (const DecodePoint& point : points) {
    head.push_back(Grouped(static_cast<uint64_t>(point.context)));
    total.push_back(fmt::format("{:.2f}", 1e3 * point.seconds));
  }
  table.AddRow(std::move(head));
  for (size_t stage = 0; stage < kNumStages; ++stage) {
    std::vector<std::string> row = {StageName(static_cast<Stage>(stage))};
    for (const DecodePoint& point : points) row.push_back(fmt::format("{:.2f}", 1e3 * point.stages.seconds[stage]));
    table.AddRow(std::move(row));
  }
  table.AddRow(std::move(total));
  return table.ToString();
}

}  // namespace

std::string ModelReportText(const ModelReport& report) {
  std::string text = fmt::format(
      "load {:.2f} s ({:.2f} s to read the files once); weights {}, resident {} (most while loading {})\n"
      "global KV of the longest context {}, windows and tails {}\n\n",
      report.load_seconds, report.read_seconds, BinarySize(report.weight_bytes), BinarySize(report.loaded_bytes),
      BinarySize(report.load_peak_bytes), BinarySize(report.global_kv_bytes), BinarySize(report.sequence_bytes));
  text += MeasurementsText(MeasurementsOf(report));
  if (!report.decode.empty()) {
    text += "\n" + StagesText(report.decode);
    text += fmt::format("  the longest context costs {:.2f} x the shortest; scratch {} and {}\n",
                        report.decode.back().seconds / report.decode.front().seconds,
                        BinarySize(report.scratch_bytes.front()), BinarySize(report.scratch_bytes.back()));
  }
  for (const PrefillPoint& point : report.prefill) {
    text += fmt::format("  chunks of {}, {}: {:.1f} tokens/s\n", point.chunk,
                        point.is_full ? "every layer" : "encoder", point.tokens_per_second);
  }
  return text;
}

Json ModelReportJson(const ModelReport& report) {
  Json decode = Json::array(), prefill = Json::array();
  for (size_t i = 0; i < report.decode.size(); ++i) {
    const DecodePoint& point = report.decode[i];
    Json stages;
    for (size_t stage = 0; stage < kNumStages; ++stage) {
      stages[StageName(static_cast<Stage>(stage))] = point.stages.seconds[stage];
    }
    decode.push_back({{"context", point.context},
                      {"seconds_per_token", point.seconds},
                      {"read_bytes", point.read_bytes},
                      {"scratch_bytes", report.scratch_bytes[i]},
                      {"stage_seconds", std::move(stages)}});
  }
  for (const PrefillPoint& point : report.prefill) {
    prefill.push_back({{"chunk", point.chunk},
                       {"layers", point.is_full ? "all" : "encoder"},
                       {"tokens_per_second", point.tokens_per_second}});
  }
  return {{"load_seconds", report.load_seconds},       {"read_seconds", report.read_seconds},
          {"weight_bytes", report.weight_bytes},       {"loaded_bytes", report.loaded_bytes},
          {"load_peak_bytes", report.load_peak_bytes}, {"global_kv_bytes", report.global_kv_bytes},
          {"sequence_bytes", report.sequence_bytes},   {"measurements", MeasurementsJson(MeasurementsOf(report))},
          {"decode", std::move(decode)},               {"prefill", std::move(prefill)}};
}

std::string ReplayRatesText(std::span<const ReplayRate> rates) {
  TextTable table("lrrr");
  table.AddRow({"replay", "prefill tokens/s", "decode tokens/s", "token-layers of full"});
  for (const ReplayRate& rate : rates) {
    table.AddRow({ReplayModeName(rate.replay), fmt::format("{:.0f}", rate.prefill_tokens_per_second),
                  fmt::format("{:.0f}", rate.decode_tokens_per_second),
                  fmt::format("{:.1f} %", 100 * rate.token_layer_share)});
  }
  return table.ToString();
}

Json ReplayRatesJson(std::span<const ReplayRate> rates) {
  Json list = Json::array();
  for (const ReplayRate& rate : rates) {
    list.push_back({{"replay", ReplayModeName(rate.replay)},
                    {"prefill_tokens_per_second", rate.prefill_tokens_per_second},
                    {"decode_tokens_per_second", rate.decode_tokens_per_second},
                    {"token_layer_share", rate.token_layer_share}});
  }
  return list;
}

std::string FirstTokensText(std::span<const FirstToken> runs) {
  TextTable table("lrrrrr");
  table.AddRow({"first token", "ms", "hit", "replayed", "restore ms", "of cold"});
  for (const FirstToken& run : runs) {
    table.AddRow({run.state, fmt::format("{:.1f}", 1e3 * run.seconds), Grouped(static_cast<uint64_t>(run.reuse.hit_tokens)),
                  Grouped(static_cast<uint64_t>(run.reuse.replayed_tokens)),
                  fmt::format("{:.1f}", 1e3 * run.reuse.restore_seconds),
                  fmt::format("{:.2f} %", 100 * run.seconds / runs.front().seconds)});
  }
  return table.ToString();
}

Json FirstTokensJson(std::span<const FirstToken> runs) {
  Json list = Json::array();
  for (const FirstToken& run : runs) {
    list.push_back({{"state", run.state},
                    {"seconds", run.seconds},
                    {"of_cold", run.seconds / runs.front().seconds},
                    {"hit_tokens", run.reuse.hit_tokens},
                    {"replayed_tokens", run.reuse.replayed_tokens},
                    {"restore_seconds", run.reuse.restore_seconds}});
  }
  return list;
}

}  // namespace emberkv
