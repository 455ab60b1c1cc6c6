// Time as the rest of the house sees it, behind an interface so that tests decide what time it is.
//
// Wall time may jump either way at any moment and is for people; monotonic time is for durations
// within one boot; time that must hold across restarts is base/durable_clock.h. Any thread may call
// any method.
#pragma once

#include <cstdint>
#include <string>

namespace emberkv {

class Clock {
 public:
  virtual ~Clock() = default;

  virtual int64_t WallMicros() const = 0;  // since 1970-01-01 UTC

  // Since the machine started, suspended time included. Never runs backwards, never jumps.
  virtual int64_t MonotonicMicros() const = 0;

  // Names the boot that MonotonicMicros counts from. Empty: unknown.
  virtual std::string BootId() const = 0;
};

class SystemClock final : public Clock {
 public:
  SystemClock();

  int64_t WallMicros() const override;
  int64_t MonotonicMicros() const override;
  std::string BootId() const override { return boot_id_; }

 private:
  const std::string boot_id_;
};

}  // namespace emberkv
