#include "cli/plan.h"
#include "cli/quantity.h"
#include "cli/text_table.h"
#include "fmt/format.h"
#include "layout/scratch.h"

namespace emberkv {
namespace {

std::string LayerRange(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

bool LookAlike(const LayerPlan& a, const LayerPlan& b) {
  return a.role == b.role && a.ratio == b.ratio && a.kv_source == b.kv_source &&
         a.index_source == b.index_source && a.candidate == b.candidate &&
         (a.engram < 0) == (b.engram < 0);
}

std::string CandidateText(CandidateRole role) {
  switch (role) {
    case CandidateRole::kNone:
      return "";
    case CandidateRole::kMakes:
      return "makes pool";
    case CandidateRole::kFilters:
      return "in pool";
  }
  return "";
}

std::string LayerTable(const CacheLayout& layout) {
  TextTable table("llrrrll");
  table.AddRow({"layers", "role", "tokens/row", "KV of", "selection of", "candidates", "Engram"});
  for (int first = 0; first < layout.num_layers();) {
    const LayerPlan& layer = layout.layers[static_cast<size_t>(first)];
    int last = first;
    while (last + 1 < layout.num_layers() &&
           LookAlike(layer, layout.layers[static_cast<size_t>(last) + 1])) {
      ++last;
    }
    std::vector<std::string> row = {LayerRange(first, last), LayerRoleName(layer.role)};
    if (layer.ratio == 0) {
      row.insert(row.end(), {"", "", "", ""});
    } else {
      const KvSource& source = layout.sources[static_cast<size_t>(layer.kv_source)];
      row.insert(row.end(), {std::to_string(layer.ratio), std::to_string(source.layer),
                             std::to_string(layer.index_source), CandidateText(layer.candidate)});
    }
    row.push_back(layer.engram < 0 ? "" : "before it");
    table.AddRow(std::move(row));
    first = last + 1;
  }
  return table.ToString();
}

std::string Split(const Plan& plan) {
  const CacheLayout& layout = plan.layout;
  if (!layout.decoder_begin) {
    return fmt::format("{} layers, not split: every prompt token runs through all of them\n",
                       layout.num_layers());
  }
  return fmt::format("{} layers = encoder {} for every prompt token + decoder {} for the last {}\n",
                     layout.num_layers(), LayerRange(0, *layout.decoder_begin - 1),
                     LayerRange(*layout.decoder_begin, layout.num_layers() - 1),
                     plan.config.sliding_window);
}

// Rows of the step that the scratch line is for: a prefill chunk of the engine's default size.
constexpr int kScratchRows = 512;

std::string ByteTable(const Plan& plan) {
  const CacheLayout& layout = plan.layout;
  TextTable table("lrl");
  const double rows = layout.main_bytes_per_token() / double(layout.kv_row_bytes);
  table.AddRow({"global KV per token", GroupedDecimal(layout.bytes_per_token()),
                fmt::format("{} rows of {} + {}", GroupedDecimal(rows), layout.kv_row_bytes,
                            layout.key_row_bytes)});
  table.AddRow({"  main KV", GroupedDecimal(layout.main_bytes_per_token())});
  table.AddRow({"  index keys", GroupedDecimal(layout.key_bytes_per_token())});
  table.AddRow({"page", Grouped(layout.page_bytes),
                fmt::format("global KV of a block of {} tokens", layout.block_size)});
  table.AddRow({"windows per sequence", Grouped(layout.window_bytes()),
                fmt::format("{} layers x {} tokens x {}, whatever the length", layout.num_layers(),
                            plan.config.sliding_window, layout.window_row_bytes)});
  table.AddRow({"encoder checkpoint", Grouped(layout.encoder_window_bytes()),
                fmt::format("windows of {} layers", layout.encoder_layers())});
  table.AddRow({"compressor tails", Grouped(layout.tail_bytes),
                fmt::format("{} open groups in fp32", layout.num_tails)});
  table.AddRow({"scratch of a step", Grouped(StepScratch(plan.config, layout, kScratchRows, 1).total()),
                fmt::format("{} rows, 1 thread, whatever the context", kScratchRows)});
  return table.ToString();
}

std::string MemoryTable(const Plan& plan) {
  TextTable table("rrrrr");
  table.AddRow({"tokens", "pages", "device", "host", "SSD"});
  for (const SessionMemory& memory : plan.memory) {
    table.AddRow({Grouped(uint64_t(memory.tokens)), Grouped(uint64_t(memory.pages)),
                  BinarySize(SessionBytes(memory, Tier::kDevice)),
                  BinarySize(SessionBytes(memory, Tier::kHost)),
                  BinarySize(SessionBytes(memory, Tier::kSsd))});
  }
  return table.ToString();
}

// Empty when neither sizes nor a number of sessions were given.
std::string TierTable(const Plan& plan) {
  TextTable table("lrrrrl");
  std::vector<std::string> titles = {"tier", "size", "sessions", "tokens of global KV"};
  if (plan.sessions)
    titles.push_back(fmt::format("{} sessions need", Grouped(uint64_t(*plan.sessions))));
  table.AddRow(std::move(titles));
  bool any = false;
  for (const TierPlan& tier : plan.tiers) {
    if (!tier.size_bytes && !tier.sessions_bytes) continue;
    any = true;
    std::vector<std::string> row = {tier.name};
    if (tier.size_bytes) {
      row.insert(row.end(), {BinarySize(*tier.size_bytes), Grouped(uint64_t(tier.fit.sessions)),
                             Grouped(uint64_t(tier.fit.tokens))});
    } else {
      row.insert(row.end(), {"-", "-", "-"});
    }
    if (tier.sessions_bytes) {
      row.push_back(BinarySize(*tier.sessions_bytes));
      if (tier.size_bytes) {
        row.push_back(*tier.sessions_bytes <= *tier.size_bytes ? "fit" : "do not fit");
      }
    }
    table.AddRow(std::move(row));
  }
  if (!any) return "";
  return fmt::format(
             "What fits, in sessions of {} tokens that share nothing (sizes are for the cache "
             "alone)\n",
             Grouped(uint64_t(plan.context))) +
         table.ToString() + "\n";
}

std::string DecodeTable(const Plan& plan) {
  const auto giga = [](double operations) { return fmt::format("{:.3f}", operations / 1e9); };
  TextTable table("lrrr");
  table.AddRow({"tokens in the cache", "weight", Grouped(uint64_t(plan.decode_short.tokens)),
                Grouped(uint64_t(plan.decode_long.tokens))});
  for (size_t i = 0; i < plan.decode_long.terms.size(); ++i) {
    const OperationTerm& term = plan.decode_long.terms[i];
    table.AddRow({term.name, fmt::format("{}", term.weight),
                  giga(plan.decode_short.terms[i].weighted()), giga(term.weighted())});
  }
  const double total_short = TotalWeighted(plan.decode_short.terms);
  const double total_long = TotalWeighted(plan.decode_long.terms);
  table.AddRow({"total", "", giga(total_short), giga(total_long)});
  table.AddRow({"ratio", "", "1", fmt::format("{:.2f}", total_long / total_short)});
  return table.ToString();
}

std::string Derivation(const Generation& generation) {
  std::string text;
  for (const RowGeometry& rows : generation.rows) {
    if (!text.empty()) text += " + ";
    text += fmt::format("{} x {}", rows.layers, Grouped(uint64_t(rows.row_bytes())));
    if (rows.tokens_per_row != 1) text += fmt::format(" / {}", rows.tokens_per_row);
  }
  return text;
}

std::string GenerationTable(const Plan& plan) {
  TextTable table("lrl");
  table.AddRow({"generation", "bytes/token", "layers x row / tokens per row"});
  for (const Generation& generation : plan.generations) {
    table.AddRow(
        {generation.name, GroupedDecimal(generation.bytes_per_token()), Derivation(generation)});
  }
  const GenerationRatios ratios = RatiosOf(plan);
  return table.ToString() +
         fmt::format(
             "  V1 / this = {:.0f}x: all KV that grows with the context; windows not counted\n"
             "  this / V4-Flash = 1/{:.2f}: global KV, the same count\n"
             "  this / V4-Flash on SSD = 1/{:.2f}: V4 also kept windows there, about half of its "
             "bytes\n",
             ratios.kv_of_v1, ratios.kv_of_v4, ratios.stored_of_v4);
}

std::string PrefillLine(const Plan& plan) {
  return fmt::format(
      "Prefill: {} of {} layers for every token; {:.1f} % of all token-layers at {} tokens\n",
      plan.layout.encoder_layers(), plan.layout.num_layers(), 100 * plan.prefill.share(),
      Grouped(uint64_t(plan.context)));
}

}  // namespace

std::string PlanText(const Plan& plan) {
  std::string text = fmt::format("{}: {}\n", plan.config_path, Split(plan));
  text += LayerTable(plan.layout) + "\n";
  text += "Bytes\n" + ByteTable(plan) + "\n";
  text +=
      "Memory of one session (device: pages, windows, tails; host: pages, encoder checkpoint, "
      "tails; "
      "SSD: pages)\n" +
      MemoryTable(plan) + "\n";
  text += TierTable(plan);
  text += fmt::format("Retention: {:.0f} h of {} new tokens/s = {:.2f} TB of global KV\n\n",
                      kRetentionHours, GroupedDecimal(plan.tokens_per_second),
                      plan.retained_bytes / 1e12);
  text += "Decode step, 10^9 weighted operations (BF16 1, FP8 0.5, FP4 0.25)\n" +
          DecodeTable(plan) + "\n";
  text += PrefillLine(plan) + "\n";
  text += "KV bytes per token, generation by generation\n" + GenerationTable(plan);
  return text;
}

}  // namespace emberkv
