#include "cli/interrupt.h"

#include <csignal>

namespace emberkv {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

extern "C" void SetInterrupted(int) { interrupted = true; }

}  // namespace

const std::atomic<bool>* CancelOnInterrupt() {
  struct sigaction action = {};
  action.sa_handler = SetInterrupted;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the second one finds the default
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  return &interrupted;
}

}  // namespace emberkv
