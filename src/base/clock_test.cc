#include "base/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/fake_clock.h"

namespace emberkv {
namespace {

TEST(SystemClock, WallTimeIsThatOfTheSystem) {
  const SystemClock clock;
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  EXPECT_NEAR(static_cast<double>(clock.WallMicros()), static_cast<double>(now), 60e6);
}

TEST(SystemClock, MonotonicTimeAdvancesInMicrosecondsSinceTheStart) {
  const SystemClock clock;
  double uptime_seconds = 0;
  std::ifstream("/proc/uptime") >> uptime_seconds;
  const int64_t before = clock.MonotonicMicros();
  EXPECT_NEAR(static_cast<double>(before) / 1e6, uptime_seconds, 60);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const int64_t passed = clock.MonotonicMicros() - before;
  EXPECT_GE(passed, 2000);
  EXPECT_LT(passed, 60'000'000);
}

TEST(SystemClock, TwoClocksOfOneBootAgreeOnItsName) {
  const std::string boot_id = SystemClock().BootId();
  EXPECT_EQ(boot_id.size(), 36u) << boot_id;
  EXPECT_EQ(SystemClock().BootId(), boot_id);
}

TEST(FakeClock, MovesOnlyAsTold) {
  FakeClock clock;
  const int64_t wall = clock.WallMicros();
  const std::string boot = clock.BootId();
  clock.Advance(5);
  clock.JumpWall(-3);
  EXPECT_EQ(clock.WallMicros(), wall + 2);
  EXPECT_EQ(clock.MonotonicMicros(), 5);
  EXPECT_EQ(clock.BootId(), boot);
  clock.Reboot(7);
  EXPECT_EQ(clock.WallMicros(), wall + 9);
  EXPECT_EQ(clock.MonotonicMicros(), 0);
  EXPECT_NE(clock.BootId(), boot);
}

}  // namespace
}  // namespace emberkv
