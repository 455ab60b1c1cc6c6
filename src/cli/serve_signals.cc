#include "cli/serve_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

namespace emberkv {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};

// Signals go through a pipe to the thread that attends to them. Set once, before there is a handler.
int g_signals_out = -1;

// Runs on any thread that does not block the signal: ours do, but those that libraries start before main do not.
void PassOn(int signal) {
  const int kept_errno = errno;
  const char byte = static_cast<char>(signal);
  (void)!::write(g_signals_out, &byte, 1);
  errno = kept_errno;
}

}  // namespace

struct ServeSignals::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool is_attended = false;  // guarded by mutex, as are the others
  bool stops = false;
  bool reloads = false;

  void Take(int signal) {
    const std::lock_guard lock(mutex);
    if (signal == SIGHUP) {
      reloads = true;
    } else if (!is_attended || stops) {
      ::_exit(128 + signal);
    } else {
      stops = true;
    }
    wake.notify_all();
  }
};

ServeSignals::ServeSignals() : state_(std::make_shared<State>()) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;  // signals end the process, then
  g_signals_out = ends[1];
  struct sigaction action {};
  action.sa_handler = &PassOn;
  action.sa_flags = SA_RESTART;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kSignals) {
    sigaddset(&signals, signal);
    sigaction(signal, &action, nullptr);
  }
  // Reads and waits of other threads shall not be interrupted.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([state = state_, signals, in = ends[0]] {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    pollfd next{in, POLLIN, 0};
    // poll, as the thread sanitizer keeps a handler back while its thread waits in read, which is restarted.
    for (int ready = 0; (ready = ::poll(&next, 1, -1)) == 1 || errno == EINTR;) {
      char byte = 0;
      if (ready == 1 && ::read(in, &byte, 1) == 1) state->Take(byte);
    }
  }).detach();
}

void ServeSignals::Attend() {
  const std::lock_guard lock(state_->mutex);
  state_->is_attended = true;
}

ServeSignals::Event ServeSignals::Wait() {
  std::unique_lock lock(state_->mutex);
  state_->wake.wait(lock, [this] { return state_->stops || state_->reloads; });
  if (state_->stops) return Event::kStop;
  state_->reloads = false;
  return Event::kReload;
}

}  // namespace emberkv
