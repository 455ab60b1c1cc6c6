// Ctrl-C: the first asks the command to finish cleanly, the second ends the process at once.
#pragma once

#include <atomic>

namespace emberkv {

// What a shell reports for a command that Ctrl-C ended.
inline constexpr int kInterruptedExitCode = 130;

// Takes over SIGINT for the process and returns the flag that the first one sets. Called once, before
// other threads start.
const std::atomic<bool>* CancelOnInterrupt();

}  // namespace emberkv
