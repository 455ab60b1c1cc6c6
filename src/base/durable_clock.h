// Time for promises that survive restarts: deadlines of stored pages are points of it.
//
// Within one boot it advances with the monotonic clock, whether or not a process runs; the wall
// clock has no say. After a reboot it goes on from the last recorded moment. What passed in between
// has two witnesses, and counts only as far as both agree: the wall clock, which may have jumped,
// and the monotonic clock, which does not know how long the machine was off and may belong to
// another machine (a volume that moved) or another count of boots (a container with a boot id of
// its own). A single wrong witness therefore never makes this clock run fast, and a promise is kept
// too long rather than broken. The price: time that the machine is off does not count, nor what the
// last run left unrecorded before a reboot. Nothing lives for ever, because all time that a process
// runs, and all time between two runs of one boot, does count.
//
// The caller keeps the record: writes Now's moment beside what depends on it with its first change,
// every minute or so, and when it closes. Without a reboot a late record costs nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace emberkv {

// A moment of durable time, and the clocks that were read with it. What is recorded.
struct DurableMoment {
  int64_t durable_us = 0;
  int64_t wall_us = 0;
  int64_t monotonic_us = 0;
  std::string boot_id;

  bool operator==(const DurableMoment&) const = default;
};

// The present, at a given durable time. For a store without a record: 0, or, where the record is
// lost and deadlines are not, the latest time of use that is known, so that no page starts anew.
DurableMoment StartDurableTime(const Clock& clock, int64_t durable_us = 0);

// The present, from an earlier moment of this or another process or boot. Durable time never runs
// backwards. Any values are accepted; whether a record was damaged is for its keeper to know.
DurableMoment ContinueDurableTime(const DurableMoment& earlier, const Clock& clock);

// Durable time of a running process. Const after construction: any thread may read it.
class DurableClock {
 public:
  // Goes on from an earlier moment, of this or another process or boot. `clock` outlives this
  // object.
  DurableClock(const Clock* clock, const DurableMoment& earlier)
      : clock_(clock), start_(ContinueDurableTime(earlier, *clock)) {}

  int64_t NowMicros() const;
  DurableMoment Now() const;

 private:
  const Clock* const clock_;
  const DurableMoment start_;
};

}  // namespace emberkv
