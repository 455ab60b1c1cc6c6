// A clock for tests: it stands still until the test moves it. Any thread may read and move it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"

namespace emberkv {

class FakeClock final : public Clock {
 public:
  int64_t WallMicros() const override {
    const std::lock_guard lock(mutex_);
    return wall_us_;
  }
  int64_t MonotonicMicros() const override {
    const std::lock_guard lock(mutex_);
    return monotonic_us_;
  }
  std::string BootId() const override {
    const std::lock_guard lock(mutex_);
    return boot_id_;
  }

  // Time passes.
  void Advance(int64_t us) {
    const std::lock_guard lock(mutex_);
    wall_us_ += us;
    monotonic_us_ += us;
  }

  // Somebody sets the wall clock forward, or back by a negative amount.
  void JumpWall(int64_t us) {
    const std::lock_guard lock(mutex_);
    wall_us_ += us;
  }

  // The machine is off for `off_us` and starts again under a boot id of its own.
  void Reboot(int64_t off_us) {
    const std::lock_guard lock(mutex_);
    wall_us_ += off_us;
    monotonic_us_ = 0;
    boot_id_ = "boot-" + std::to_string(++boots_);
  }

  void SetWall(int64_t us) {
    const std::lock_guard lock(mutex_);
    wall_us_ = us;
  }
  void SetMonotonic(int64_t us) {
    const std::lock_guard lock(mutex_);
    monotonic_us_ = us;
  }
  void SetBootId(std::string boot_id) {
    const std::lock_guard lock(mutex_);
    boot_id_ = std::move(boot_id);
  }

 private:
  mutable std::mutex mutex_;
  int64_t wall_us_ = 1'800'000'000'000'000;  // guarded by mutex_, as is all below
  int64_t monotonic_us_ = 0;
  int boots_ = 0;
  std::string boot_id_ = "boot-0";
};

}  // namespace emberkv
