// The one binary, `emberkv`. Each subcommand lives in its own file and reports through `exit_code`:
// 0 done, 1 failed; 2 is a wrong command line.
#include <CLI/CLI.hpp>

#include "cli/bench_command.h"
#include "cli/cache_command.h"
#include "cli/eval_command.h"
#include "cli/inspect_command.h"
#include "cli/plan_command.h"
#include "cli/run_command.h"
#include "cli/serve_command.h"
#include "cli/simulate_command.h"
#include "cli/usage_command.h"

int main(int argc, char** argv) {
  CLI::App app{"EmberKV: KV cache and inference for DeepSeek-V4.1-Flash-type models", "emberkv"};
  app.set_version_flag("--version", "emberkv " EMBERKV_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  emberkv::AddPlanCommand(app, &exit_code);
  emberkv::AddRunCommand(app, &exit_code);
  emberkv::AddServeCommand(app, &exit_code);
  emberkv::AddKeyCommand(app, &exit_code);
  emberkv::AddCacheCommand(app, &exit_code);
  emberkv::AddEvalCommand(app, &exit_code);
  emberkv::AddInspectCommand(app, &exit_code);
  emberkv::AddBenchCommand(app, &exit_code);
  emberkv::AddUsageCommand(app, &exit_code);
  emberkv::AddSimulateCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
