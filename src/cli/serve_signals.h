// What the system tells `emberkv serve` by signals: SIGTERM and SIGINT ask it to end, SIGHUP to read its keys
// again. A thread waits for them; the signal handler only passes them on to it.
//
// Made once, by the main thread, before any other thread: those made later leave the signals to it.
#pragma once

#include <memory>

namespace emberkv {

class ServeSignals {
 public:
  ServeSignals();
  ServeSignals(const ServeSignals&) = delete;
  ServeSignals& operator=(const ServeSignals&) = delete;

  // Until Attend, and after a Wait that told kStop, SIGTERM and SIGINT end the process at once, with 128 and
  // the signal's number.
  void Attend();

  enum class Event { kStop, kReload };
  // The next one; for one thread.
  Event Wait();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which ends with the process
};

}  // namespace emberkv
