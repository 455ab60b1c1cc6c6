#include "base/durable_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/fake_clock.h"

namespace emberkv {
namespace {

constexpr int64_t kHour = int64_t{3600} * 1'000'000;
constexpr int64_t kDay = 24 * kHour;

TEST(DurableClock, AdvancesWithTheMonotonicClock) {
  FakeClock clock;
  const DurableClock durable(&clock, StartDurableTime(clock, 100));
  EXPECT_EQ(durable.NowMicros(), 100);
  clock.Advance(kHour);
  EXPECT_EQ(durable.NowMicros(), 100 + kHour);
  EXPECT_EQ(durable.Now(), (DurableMoment{100 + kHour, clock.WallMicros(), kHour, clock.BootId()}));
}

TEST(DurableClock, Case_Q10_WallJumpsOfARunningMachineChangeNothing) {
  for (const int64_t jump : {10 * kDay, -10 * kDay}) {
    FakeClock clock;
    const DurableClock durable(&clock, StartDurableTime(clock));
    const DurableMoment record = durable.Now();
    clock.JumpWall(jump);
    clock.Advance(kHour);
    EXPECT_EQ(durable.NowMicros(), kHour);
    // Nor do they between two processes.
    EXPECT_EQ(DurableClock(&clock, record).NowMicros(), kHour);
    EXPECT_EQ(DurableClock(&clock, durable.Now()).NowMicros(), kHour);
  }
}

TEST(DurableClock, TimeBetweenTwoProcessesOfOneBootCounts) {
  FakeClock clock;
  const DurableMoment record = DurableClock(&clock, StartDurableTime(clock)).Now();
  clock.Advance(80 * kHour);
  EXPECT_EQ(DurableClock(&clock, record).NowMicros(), 80 * kHour);
}

// The machine ran for `before`, was off for a day, and has been up again for `after`; meanwhile the
// wall clock jumped. Returns the durable time that passed.
int64_t AcrossReboot(int64_t before, int64_t after, int64_t jump) {
  FakeClock clock;
  clock.Advance(before);
  const DurableMoment record = StartDurableTime(clock);
  clock.Reboot(kDay);
  clock.JumpWall(jump);
  clock.Advance(after);
  return ContinueDurableTime(record, clock).durable_us;
}

TEST(DurableClock, AfterARebootTheTimeUpCountsAndTheTimeOffDoesNot) {
  EXPECT_EQ(AcrossReboot(5 * kHour, 2 * kHour, 0), 2 * kHour);
  EXPECT_EQ(AcrossReboot(5 * kHour, 0, 0), 0);
  // Up for longer than before: the count could as well have gone on under another name.
  EXPECT_EQ(AcrossReboot(5 * kHour, 6 * kHour, 0), kHour);
}

TEST(DurableClock, Case_Q10_WallJumpsAcrossARebootExpireNothing) {
  EXPECT_EQ(AcrossReboot(5 * kHour, 2 * kHour, 10 * kDay), 2 * kHour);
  EXPECT_EQ(AcrossReboot(5 * kHour, 2 * kHour, -10 * kDay), 0);
  EXPECT_EQ(AcrossReboot(5 * kHour, 2 * kHour, 20'000 * kDay), 2 * kHour);
}

TEST(DurableClock, AVolumeThatMovesToAMachineUpForLongGoesByTheWallClock) {
  FakeClock clock;
  const DurableMoment record = StartDurableTime(clock);
  clock.SetBootId("another machine");
  clock.SetMonotonic(100 * kDay);
  clock.JumpWall(kHour);  // between the two
  EXPECT_EQ(ContinueDurableTime(record, clock).durable_us, kHour);
}

TEST(DurableClock, ANewBootIdOnARunningMachineDoesNotCountItsWholeUptime) {
  FakeClock clock;
  clock.Advance(100 * kDay);
  const DurableMoment record = StartDurableTime(clock);
  clock.SetBootId("another container");
  clock.Advance(kHour);
  clock.JumpWall(10 * kDay);
  EXPECT_EQ(ContinueDurableTime(record, clock).durable_us, kHour);
}

TEST(DurableClock, UnknownBootsAreNeverTakenForTheSame) {
  FakeClock clock;
  clock.SetBootId("");
  const DurableMoment record = StartDurableTime(clock);
  clock.SetMonotonic(100 * kDay);
  EXPECT_EQ(ContinueDurableTime(record, clock).durable_us, 0);
  clock.JumpWall(kHour);
  EXPECT_EQ(ContinueDurableTime(record, clock).durable_us, kHour);
}

TEST(DurableClock, AMachineRestoredFromASnapshotDoesNotGoBack) {
  FakeClock clock;
  clock.Advance(5 * kHour);
  const DurableMoment record = StartDurableTime(clock, 7);
  const DurableClock durable(&clock, record);
  clock.SetMonotonic(kHour);
  clock.JumpWall(10 * kDay);
  EXPECT_EQ(ContinueDurableTime(record, clock).durable_us, 7);
  EXPECT_EQ(durable.NowMicros(), 7);
}

TEST(DurableClock, AnyRecordIsTakenWithoutOverflow) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t durable : {kMin, int64_t{-1}, int64_t{0}, kMax}) {
    for (const int64_t wall : {kMin, int64_t{0}, kMax}) {
      for (const int64_t monotonic : {kMin, int64_t{0}, kMax}) {
        for (const char* boot : {"boot-0", "another", ""}) {
          FakeClock clock;
          clock.Advance(kHour);
          const DurableMoment now = ContinueDurableTime({durable, wall, monotonic, boot}, clock);
          EXPECT_GE(now.durable_us, durable);
          EXPECT_EQ(now.monotonic_us, kHour);
        }
      }
    }
  }
}

// What can befall a store, and how long it truly takes.
enum class Event { kRun, kIdleRestart, kReboot, kCrashReboot, kWallForward, kWallBack, kRename };
constexpr int kNumEvents = 7;

// One store on one machine, with the truth beside it.
struct World {
  FakeClock clock;
  DurableMoment record = StartDurableTime(clock);
  int64_t true_us = 0;
  int64_t run_us = 0;  // while a process ran and kept its record

  void Pass(int64_t us) {
    clock.Advance(us);
    true_us += us;
  }
  void Restart() { record = ContinueDurableTime(record, clock); }

  void Happen(Event event) {
    switch (event) {
      case Event::kRun:
        Pass(3 * kHour);
        run_us += 3 * kHour;
        record = DurableClock(&clock, record).Now();
        break;
      case Event::kIdleRestart:
        Pass(5 * kHour);
        Restart();
        break;
      case Event::kCrashReboot:
        Pass(kHour);  // and no record of it
        [[fallthrough]];
      case Event::kReboot:
        clock.Reboot(7 * kHour);
        true_us += 7 * kHour;
        Pass(kHour / 60);
        Restart();
        break;
      case Event::kWallForward:
        clock.JumpWall(10 * kDay);
        break;
      case Event::kWallBack:
        clock.JumpWall(-10 * kDay);
        break;
      case Event::kRename:
        clock.SetBootId(clock.BootId() + "'");
        Restart();
        break;
    }
  }
};

TEST(DurableClock, Case_Q10_NoHistoryMakesItRunFastOrStandStill) {
  constexpr int kLength = 6;
  int histories = 1;
  for (int i = 0; i < kLength; ++i) histories *= kNumEvents;
  for (int history = 0; history < histories; ++history) {
    World world;
    for (int i = 0, rest = history; i < kLength; ++i, rest /= kNumEvents) {
      const int64_t before = world.record.durable_us;
      world.Happen(static_cast<Event>(rest % kNumEvents));
      const int64_t now = world.record.durable_us;
      ASSERT_GE(now, before) << "history " << history << ", event " << i;
      ASSERT_LE(now, world.true_us)
          << "a promise is broken: history " << history << ", event " << i;
      ASSERT_GE(now, world.run_us) << "time stands still: history " << history << ", event " << i;
    }
  }
}

}  // namespace
}  // namespace emberkv
