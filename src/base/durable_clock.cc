#include "base/durable_clock.h"

#include <algorithm>
#include <limits>

namespace emberkv {
namespace {

// later - earlier, at least 0; what does not fit is cut off.
int64_t Passed(int64_t earlier, int64_t later) {
  if (later <= earlier) return 0;
  int64_t difference = 0;
  const bool overflows = __builtin_sub_overflow(later, earlier, &difference);
  return overflows ? std::numeric_limits<int64_t>::max() : difference;
}

int64_t Add(int64_t time, int64_t passed) {
  return passed > std::numeric_limits<int64_t>::max() - std::max<int64_t>(time, 0)
             ? std::numeric_limits<int64_t>::max()
             : time + passed;
}

// The time that has certainly passed (see the header).
int64_t TrustedMicros(const DurableMoment& earlier, const DurableMoment& now) {
  const int64_t counted = Passed(earlier.monotonic_us, now.monotonic_us);
  const bool same_boot = !now.boot_id.empty() && now.boot_id == earlier.boot_id;
  // A count that went back within a boot is that of a machine restored from a snapshot: 0.
  if (same_boot) return counted;
  // A count that is ahead of the recorded one may have gone on from it under a new name, so only
  // what it gained counts; one that is behind has certainly started again, after the record.
  const bool went_on = now.monotonic_us >= earlier.monotonic_us;
  const int64_t at_most = went_on ? counted : std::max<int64_t>(now.monotonic_us, 0);
  return std::min(Passed(earlier.wall_us, now.wall_us), at_most);
}

}  // namespace

DurableMoment StartDurableTime(const Clock& clock, int64_t durable_us) {
  return {durable_us, clock.WallMicros(), clock.MonotonicMicros(), clock.BootId()};
}

DurableMoment ContinueDurableTime(const DurableMoment& earlier, const Clock& clock) {
  DurableMoment now = StartDurableTime(clock);
  now.durable_us = Add(earlier.durable_us, TrustedMicros(earlier, now));
  return now;
}

int64_t DurableClock::NowMicros() const {
  return Add(start_.durable_us, Passed(start_.monotonic_us, clock_->MonotonicMicros()));
}

DurableMoment DurableClock::Now() const {
  DurableMoment now = StartDurableTime(*clock_);
  now.durable_us = Add(start_.durable_us, Passed(start_.monotonic_us, now.monotonic_us));
  return now;
}

}  // namespace emberkv
