#include "cli/inspect_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "cli/progress_line.h"
#include "cli/quantity.h"
#include "cli/text_table.h"
#include "fmt/format.h"
#include "layout/model_config.h"
#include "weights/checkpoint.h"
#include "weights/fingerprint.h"

namespace emberkv {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
  bool full_fingerprint = false;
};

constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;

struct Inspection {
  Checkpoint checkpoint;
  double open_seconds = 0;  // mapping and checking all files
  Digest fingerprint;
  double fingerprint_seconds = 0;
  std::optional<Digest> full_fingerprint;
  double full_fingerprint_seconds = 0;
};

// The seconds that `work` takes.
template <class Work>
double Timed(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

Digest FullFingerprintWithProgress(const Checkpoint& checkpoint, const std::string& config_text,
                                   ThreadPool& pool) {
  ProgressLine line;
  return FullFingerprint(checkpoint, config_text, pool, [&line](uint64_t done, uint64_t total) {
    line.Show(fmt::format("hashed {} of {}", BinarySize(done), BinarySize(total)));
  });
}

Result<Inspection> Inspect(const InspectOptions& options) {
  EMBERKV_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(options.model));
  EMBERKV_ASSIGN_OR_RETURN(const std::string config_text,
                           ReadTextFile(options.model + "/config.json", kMaxConfigBytes));
  std::optional<Result<Checkpoint>> opened;
  const double open_seconds =
      Timed([&] { opened.emplace(Checkpoint::Open(options.model, config)); });
  EMBERKV_ASSIGN_OR_RETURN(Checkpoint checkpoint, *std::move(opened));

  Inspection inspection{std::move(checkpoint), open_seconds, {}, 0, {}, 0};
  ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  inspection.fingerprint_seconds = Timed(
      [&] { inspection.fingerprint = ModelFingerprint(inspection.checkpoint, config_text, pool); });
  if (options.full_fingerprint) {
    inspection.full_fingerprint_seconds = Timed([&] {
      inspection.full_fingerprint =
          FullFingerprintWithProgress(inspection.checkpoint, config_text, pool);
    });
  }
  return inspection;
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

std::string FingerprintText(const Inspection& inspection) {
  std::string text =
      fmt::format("model fingerprint  {}  (config, headers, samples; {:.3f} s)\n",
                  DigestText(inspection.fingerprint), inspection.fingerprint_seconds);
  if (inspection.full_fingerprint) {
    text +=
        fmt::format("full fingerprint   {}  (every byte; {:.3f} s)\n",
                    DigestText(*inspection.full_fingerprint), inspection.full_fingerprint_seconds);
  }
  return text;
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
  text += FingerprintText(inspection) + "\n";
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
  json["model_fingerprint"] = DigestText(inspection.fingerprint);
  json["model_fingerprint_seconds"] = inspection.fingerprint_seconds;
  if (inspection.full_fingerprint) {
    json["full_fingerprint"] = DigestText(*inspection.full_fingerprint);
    json["full_fingerprint_seconds"] = inspection.full_fingerprint_seconds;
  }
  // A path need not be UTF-8, which the default would answer with an exception.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int RunInspect(const InspectOptions& options) {
  const Result<Inspection> inspection = Inspect(options);
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
  command->add_flag("--full-fingerprint", options->full_fingerprint,
                    "Also hash every byte of the checkpoint (minutes for a released model)");
  command->callback([options, exit_code] { *exit_code = RunInspect(*options); });
}

}  // namespace emberkv
