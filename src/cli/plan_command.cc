#include "cli/plan_command.h"

#include <cstdio>
#include <memory>
#include <string>

#include "cli/parsed_option.h"
#include "cli/plan.h"
#include "cli/quantity.h"

namespace emberkv {
namespace {

constexpr const char* kExamples =
    "Sizes: K, M, G, T are powers of 1024; KB, MB, GB, TB powers of 1000.\n"
    "Examples:\n"
    "  emberkv plan config.json\n"
    "  emberkv plan config.json --context 128K --sessions 200 --device-mem 64G\n"
    "  emberkv plan MODEL_DIR --ssd 4TB --tokens-per-second 20000 --json";

struct PlanOptions {
  PlanRequest request;
  bool json = false;
};

// Fails where the text could not be written in full.
bool Print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

int RunPlan(const PlanOptions& options) {
  Result<Plan> plan = MakePlan(options.request);
  if (!plan.ok()) {
    const std::string message = "emberkv plan: " + plan.status().message() + "\n";
    std::fputs(message.c_str(), stderr);
    return 1;
  }
  return Print(options.json ? PlanJson(*plan) : PlanText(*plan)) ? 0 : 1;
}

}  // namespace

void AddPlanCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("plan", "Layer roles, bytes and budgets of a config.json");
  command->footer(kExamples);
  auto options = std::make_shared<PlanOptions>();
  PlanRequest& request = options->request;

  command->add_option("config", request.config_path, "config.json, or the folder that holds it")
      ->required();
  AddParsedOption(*command, "--context", &request.context, &ParseTokens,
                  "Tokens of a session, e.g. 32K or 1M (default: the longest allowed)");
  command->add_option("--sessions", request.sessions, "How many sessions are wanted");
  AddParsedOption(*command, "--device-mem", &request.device_bytes, &ParseBytes,
                  "Device memory for the cache, e.g. 64G");
  AddParsedOption(*command, "--host-mem", &request.host_bytes, &ParseBytes,
                  "Host memory for the cache, e.g. 200G");
  AddParsedOption(*command, "--ssd", &request.ssd_bytes, &ParseBytes,
                  "SSD space for the cache, e.g. 4TB");
  command
      ->add_option("--tokens-per-second", request.tokens_per_second,
                   "New tokens per second that the SSD keeps for 72 h")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, exit_code] { *exit_code = RunPlan(*options); });
}

}  // namespace emberkv
