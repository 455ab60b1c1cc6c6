#include "cli/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/quantity.h"
#include "cli/text_table.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

std::string Line(const Json& json) {
  // A prompt may hold any bytes; what is not UTF-8 is replaced rather than refused.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

double Rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

std::string RateText(int64_t tokens, double seconds) {
  if (tokens == 0) return "-";
  return fmt::format("{} tokens/s", Grouped(static_cast<uint64_t>(Rate(tokens, seconds))));
}

std::string Count(int64_t value) { return Grouped(static_cast<uint64_t>(value)); }

}  // namespace

std::string AnswerJson(const AnswerReport& answer) {
  return Line({{"event", "answer"},
               {"index", answer.index},
               {"prompt", answer.prompt},
               {"text", answer.text},
               {"prompt_tokens", answer.prompt_tokens},
               {"output_tokens", answer.output_tokens},
               {"ttft_ms", 1000 * answer.ttft_seconds},
               {"finish_reason", FinishReasonName(answer.finish_reason)}});
}

std::string SummaryJson(const RunSummary& summary) {
  const SessionStats& session = summary.session;
  Json json = {
      {"event", "summary"},
      {"prompt_tokens", summary.prompt_tokens},
      {"output_tokens", summary.output_tokens},
      {"ttft_ms", 1000 * summary.ttft_seconds},
      {"prefill_tokens_per_s", Rate(session.prefill_tokens, session.prefill_seconds)},
      {"decode_tokens_per_s", Rate(session.decode_tokens, session.decode_seconds)},
      {"tokens_in_cache", session.computed_tokens},
      {"kv_pages", session.pages},
      {"kv_page_bytes", summary.pool.page_bytes},
      {"kv_bytes", session.kv_bytes},
      {"kv_bytes_per_token", session.kv_bytes_per_token()},
      {"kv_rows_bytes", session.filled_kv_bytes},
      {"kv_rows_bytes_per_token", session.filled_kv_bytes_per_token()},
      {"window_bytes", session.window_bytes},
      {"tail_bytes", session.tail_bytes},
      {"token_layers", session.token_layers},
      {"token_layers_full", session.full_token_layers},
      {"token_layer_share", session.token_layer_share()},
      {"replay", ReplayModeName(session.replay)},
      {"isa", summary.isa},
      {"threads", summary.threads},
      {"pool_bytes", summary.pool.capacity_bytes()},
      {"weight_bytes", summary.weight_bytes},
  };
  if (!session.replay_note.empty()) json["replay_note"] = session.replay_note;
  return Line(json);
}

std::string SummaryText(const RunSummary& summary) {
  const SessionStats& session = summary.session;
  TextTable table("lrl");
  table.AddRow({"prompt tokens", Count(summary.prompt_tokens)});
  table.AddRow({"output tokens", Count(summary.output_tokens)});
  table.AddRow({"TTFT",
                summary.output_tokens > 0 ? fmt::format("{:.2f} s", summary.ttft_seconds) : "-",
                "of the first prompt"});
  table.AddRow({"prefill", RateText(session.prefill_tokens, session.prefill_seconds)});
  table.AddRow({"decode", RateText(session.decode_tokens, session.decode_seconds)});
  table.AddRow({"global KV held", BinarySize(session.kv_bytes),
                fmt::format("{} pages x {} bytes, {} per token", Count(session.pages),
                            Grouped(summary.pool.page_bytes),
                            GroupedDecimal(session.kv_bytes_per_token()))});
  table.AddRow({"  rows filled", BinarySize(session.filled_kv_bytes),
                fmt::format("{} bytes per token, {} tokens",
                            GroupedDecimal(session.filled_kv_bytes_per_token()),
                            Count(session.computed_tokens))});
  table.AddRow({"windows", BinarySize(session.window_bytes),
                fmt::format("and {} of compressor tails, whatever the length",
                            BinarySize(session.tail_bytes))});
  table.AddRow({"token-layers", Count(session.token_layers),
                fmt::format("{:.1f} % of full", 100 * session.token_layer_share())});
  table.AddRow({"replay", ReplayModeName(session.replay), session.replay_note});
  table.AddRow({"threads", std::to_string(summary.threads), summary.isa});
  table.AddRow({"KV pool", BinarySize(summary.pool.capacity_bytes()),
                fmt::format("{} pages", Grouped(summary.pool.capacity_pages))});
  table.AddRow({"weights", BinarySize(summary.weight_bytes)});
  return table.ToString();
}

}  // namespace emberkv
