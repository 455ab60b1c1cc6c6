#include "cli/inspect_command.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/quantity.h"
#include "cli/text_table.h"
#include "fmt/format.h"
#include "layout/model_config.h"
#include "weights/checkpoint.h"

namespace emberkv {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
};

struct Inspection {
  Checkpoint checkpoint;
  double open_seconds = 0;  // mapping and checking all files
};

Result<Inspection> Inspect(const std::string& model) {
  EMBERKV_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(model));
  const auto start = std::chrono::steady_clock::now();
  EMBERKV_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(model, config));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return Inspection{std::move(checkpoint), elapsed.count()};
}

std::vector<std::string> Row(const std::string& label, const TensorCount& count) {
  return {label, Grouped(static_cast<uint64_t>(count.tensors)), Grouped(count.bytes),
          BinarySize(count.bytes), Grouped(static_cast<uint64_t>(count.parameters))};
}

// One row per family, the unused ones last; families without tensors are left out.
std::string FamilyTable(const CheckpointSummary& summary) {
  TextTable table("lrrrr");
  table.AddRow({"family", "tensors", "bytes", "", "parameters"});
  for (int f = 0; f < kNumTensorFamilies; ++f) {
    const auto family = static_cast<TensorFamily>(f);
    if (summary.family(family).tensors == 0) continue;
    const std::string name = TensorFamilyName(family);
    table.AddRow(Row(IsUnused(family) ? name + " (not used)" : name, summary.family(family)));
  }
  table.AddRow(Row("all", summary.total));
  return table.ToString();
}

std::string DTypeTable(const CheckpointSummary& summary) {
  TextTable table("lrrrr");
  table.AddRow({"dtype", "tensors", "bytes", "", "parameters"});
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (summary.dtype(dtype).tensors != 0) {
      table.AddRow(Row(DTypeName(dtype), summary.dtype(dtype)));
    }
  }
  return table.ToString();
}

std::string EngramText(const Checkpoint& checkpoint) {
  if (checkpoint.engram_tables().empty()) return "no Engram tables\n";
  TextTable table("lrrrr");
  table.AddRow({"Engram table", "rows", "channels", "bytes", ""});
  for (const EngramTable& engram : checkpoint.engram_tables()) {
    table.AddRow({fmt::format("before layer {}", engram.layer()),
                  Grouped(static_cast<uint64_t>(engram.num_rows())),
                  std::to_string(engram.head_dim()), Grouped(engram.size_bytes()),
                  BinarySize(engram.size_bytes())});
  }
  return table.ToString();
}

std::string InspectText(const Inspection& inspection) {
  const Checkpoint& checkpoint = inspection.checkpoint;
  const CheckpointSummary& summary = checkpoint.summary();
  std::string text = fmt::format(
      "{}: {} file{}, {} tensors, {} ({} bytes), {} parameters\n", checkpoint.dir(),
      summary.num_files, summary.num_files == 1 ? "" : "s",
      Grouped(static_cast<uint64_t>(summary.total.tensors)), BinarySize(summary.total.bytes),
      Grouped(summary.total.bytes), Grouped(static_cast<uint64_t>(summary.total.parameters)));
  text += fmt::format("opened and checked in {:.3f} s\n\n", inspection.open_seconds);
  text += FamilyTable(summary) + "\n" + DTypeTable(summary) + "\n" + EngramText(checkpoint);
  return text;
}

nlohmann::ordered_json CountJson(const TensorCount& count) {
  return {{"tensors", count.tensors}, {"bytes", count.bytes}, {"parameters", count.parameters}};
}

std::string InspectJson(const Inspection& inspection) {
  const Checkpoint& checkpoint = inspection.checkpoint;
  const CheckpointSummary& summary = checkpoint.summary();
  nlohmann::ordered_json json = CountJson(summary.total);
  json["files"] = nlohmann::ordered_json::array();
  for (const SafetensorsFile& file : checkpoint.files()) {
    json["files"].push_back(file.path().substr(file.path().rfind('/') + 1));
  }
  json["families"] = nlohmann::ordered_json::array();
  for (int f = 0; f < kNumTensorFamilies; ++f) {
    const auto family = static_cast<TensorFamily>(f);
    if (summary.family(family).tensors == 0) continue;
    nlohmann::ordered_json entry = {{"family", TensorFamilyName(family)},
                                    {"used", !IsUnused(family)}};
    entry.update(CountJson(summary.family(family)));
    json["families"].push_back(std::move(entry));
  }
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (summary.dtype(dtype).tensors == 0) continue;
    json["dtypes"][DTypeName(dtype)] = CountJson(summary.dtype(dtype));
  }
  json["engram_tables"] = nlohmann::ordered_json::array();
  for (const EngramTable& table : checkpoint.engram_tables()) {
    json["engram_tables"].push_back({{"layer", table.layer()},
                                     {"rows", table.num_rows()},
                                     {"channels", table.head_dim()},
                                     {"bytes", table.size_bytes()}});
  }
  json["open_seconds"] = inspection.open_seconds;
  // A path need not be UTF-8, which the default would answer with an exception.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int RunInspect(const InspectOptions& options) {
  const Result<Inspection> inspection = Inspect(options.model);
  if (!inspection.ok()) {
    const std::string message = "emberkv inspect: " + inspection.status().message() + "\n";
    std::fputs(message.c_str(), stderr);
    return 1;
  }
  const std::string text = options.json ? InspectJson(*inspection) : InspectText(*inspection);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace

void AddInspectCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("inspect", "Check a checkpoint and summarise it");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("model", options->model, "The checkpoint's folder")->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, exit_code] { *exit_code = RunInspect(*options); });
}

}  // namespace emberkv
