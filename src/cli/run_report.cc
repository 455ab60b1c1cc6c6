#include "cli/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/cache_tools.h"
#include "cli/model_options.h"
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

uint64_t Outcomes(const WriteBehindStats& writes, PutOutcome outcome) {
  return writes.outcomes[static_cast<size_t>(outcome)];
}

Json ExpertsJson(const ExpertStats& experts) {
  return {{"path", experts.is_streamed ? "streamed" : "packed"},
          {"bytes", experts.total_bytes},
          {"kept_bytes", experts.kept_bytes},
          {"uses", experts.uses},
          {"reads", experts.reads}};
}

// What the first prompt took from the caches.
Json ReuseJson(const RunSummary& summary) {
  const ReuseStats& reuse = summary.session.reuse;
  return {{"hit_tokens", reuse.hit_tokens},
          {"replayed_tokens", reuse.replayed_tokens},
          {"computed_tokens", summary.first_prompt_tokens - reuse.hit_tokens},
          {"blocks", {{"memory", reuse.resident_blocks}, {"store", reuse.store_blocks}}},
          {"bytes_read", reuse.bytes_read},
          {"restore_ms", 1000 * reuse.restore_seconds},
          {"window_checkpoint", reuse.from_checkpoint},
          {"provenance", ProvenanceText({reuse.replayed_at})},
          {"miss_reason", reuse.miss_reason}};
}

// What became of the run's complete blocks, and what the store holds now.
Json StoreJson(const StoreStats& store, const WriteBehindStats& writes) {
  return {{"stored", Outcomes(writes, PutOutcome::kStored)},
          {"already_there", Outcomes(writes, PutOutcome::kAlreadyThere)},
          {"refused_full", Outcomes(writes, PutOutcome::kRefusedFull)},
          {"refused_too_large", Outcomes(writes, PutOutcome::kRefusedTooLarge)},
          {"failed", Outcomes(writes, PutOutcome::kFailed)},
          {"dropped", writes.dropped},
          {"unwritten", writes.queued_pages},
          {"pages", store.pages},
          {"used_bytes", store.used_bytes},
          {"promised_bytes", store.promised_bytes},
          {"budget_bytes", store.budget_bytes},
          {"get_corrupt", store.get_corrupt},
          {"evicted_before_deadline", store.evicted_before_deadline}};
}

void AddReuseRows(const RunSummary& summary, TextTable* table) {
  const ReuseStats& reuse = summary.session.reuse;
  const std::string_view miss = reuse.miss_reason;
  table->AddRow({"hit", Count(reuse.hit_tokens),
                 fmt::format("tokens of the first prompt: {} blocks from memory, {} from the store",
                             Count(reuse.resident_blocks), Count(reuse.store_blocks))});
  table->AddRow({"  read", BinarySize(reuse.bytes_read),
                 fmt::format("in {:.1f} ms, looking up included", 1000 * reuse.restore_seconds)});
  table->AddRow({"  replayed", Count(reuse.replayed_tokens),
                 reuse.from_checkpoint ? "windows came from a checkpoint" : "to rebuild windows"});
  table->AddRow({"  computed", Count(summary.first_prompt_tokens - reuse.hit_tokens),
                 miss.empty()     ? std::string("nothing was looked up")
                 : miss == "none" ? std::string("no full block was missing")
                                  : fmt::format("first missing block: {}", miss)});
  table->AddRow({"  provenance", ProvenanceText({reuse.replayed_at}), "of what was computed"});
}

void AddStoreRows(const StoreStats& store, const WriteBehindStats& writes, TextTable* table) {
  table->AddRow({"stored", Grouped(Outcomes(writes, PutOutcome::kStored)),
                 fmt::format("pages; {} there already, {} refused, {} failed, {} dropped",
                             Grouped(Outcomes(writes, PutOutcome::kAlreadyThere)),
                             Grouped(Outcomes(writes, PutOutcome::kRefusedFull) +
                                     Outcomes(writes, PutOutcome::kRefusedTooLarge)),
                             Grouped(Outcomes(writes, PutOutcome::kFailed)),
                             Grouped(writes.dropped + writes.queued_pages))});
  table->AddRow({"store", BinarySize(store.used_bytes),
                 fmt::format("of {}; {} pages, {} promised", BinarySize(store.budget_bytes),
                             Grouped(store.pages), BinarySize(store.promised_bytes))});
}

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
  json["experts"] = ExpertsJson(summary.experts);
  json["reuse"] = ReuseJson(summary);
  if (summary.caches.store) {
    json["store"] = StoreJson(*summary.caches.store, summary.caches.pages.writes);
  }
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
  if (summary.caches.store) AddReuseRows(summary, &table);
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
  if (summary.caches.store) {
    AddStoreRows(*summary.caches.store, summary.caches.pages.writes, &table);
  }
  table.AddRow({"weights", BinarySize(summary.weight_bytes),
                fmt::format("experts: {}", ExpertsText(summary.experts))});
  return table.ToString();
}

}  // namespace emberkv
