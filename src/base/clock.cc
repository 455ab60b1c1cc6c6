#include "base/clock.h"

#include <time.h>

#include <fstream>

namespace emberkv {
namespace {

std::string ReadBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);  // leaves the line empty when there is no such file
  return line;
}

int64_t Micros(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);  // fails for unknown clocks only
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

SystemClock::SystemClock() : boot_id_(ReadBootId()) {}

int64_t SystemClock::WallMicros() const { return Micros(CLOCK_REALTIME); }

int64_t SystemClock::MonotonicMicros() const { return Micros(CLOCK_BOOTTIME); }

}  // namespace emberkv
