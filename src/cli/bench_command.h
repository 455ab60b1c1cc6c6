// `emberkv bench`: kernels, model, store and resuming against the machine's limits.
#pragma once

namespace CLI {
class App;
}

namespace emberkv {

void AddBenchCommand(CLI::App& app, int* exit_code);

}  // namespace emberkv
