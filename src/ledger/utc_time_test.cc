#include "ledger/utc_time.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

TEST(UtcTime, IsWrittenAndReadBack) {
  EXPECT_EQ(UtcText(0), "1970-01-01T00:00:00.000000Z");
  // 2026-09-10 is day 20,706: 56 years of 365 days, 14 leap days, 252 days.
  const int64_t time_us = (20'706LL * 86'400 + 3 * 3600 + 4 * 60 + 5) * 1'000'000 + 6;
  EXPECT_EQ(UtcText(time_us), "2026-09-10T03:04:05.000006Z");
  EXPECT_EQ(UtcDay(time_us), "2026-09-10");
  for (const int64_t time :
       {int64_t{0}, int64_t{1}, time_us, int64_t{951'782'400'000'000},  // a leap day
        kMaxUtcMicros}) {
    EXPECT_EQ(*ParseUtcText(UtcText(time)), time) << UtcText(time);
  }
}

TEST(UtcTime, RefusesWhatItDoesNotWrite) {
  for (const char* text :
       {"", "2026-09-10", "2026-09-10T03:04:05Z", "2026-09-10T03:04:05.000006z",
        "2026-09-10 03:04:05.000006Z", "2026-02-29T00:00:00.000000Z", "2026-13-01T00:00:00.000000Z",
        "2026-00-01T00:00:00.000000Z", "2026-09-10T24:00:00.000000Z", "2026-09-10T00:60:00.000000Z",
        "2026-09-10T00:00:60.000000Z", "1969-12-31T23:59:59.999999Z", "2026-09-10T03:04:05.00000-Z",
        "2026-09-10T03:04:05.0000066Z"}) {
    EXPECT_FALSE(ParseUtcText(text).ok()) << text;
  }
  EXPECT_EQ(ParseUtcText("noon").status().message(),
            "time is 'noon'; allowed: UTC from 1970 to 9999 as in 2026-09-10T01:02:03.000004Z");
}

}  // namespace
}  // namespace emberkv
