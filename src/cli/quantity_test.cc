#include "cli/quantity.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

using std::chrono::microseconds;

TEST(Quantity, DurationsAreReadWithTheirUnit) {
  EXPECT_EQ(*ParseDuration("72h"), std::chrono::hours(72));
  EXPECT_EQ(*ParseDuration("5m"), std::chrono::minutes(5));
  EXPECT_EQ(*ParseDuration("1.5d"), std::chrono::hours(36));
  EXPECT_EQ(*ParseDuration("30s"), std::chrono::seconds(30));
  EXPECT_EQ(*ParseDuration("250ms"), microseconds(250'000));
}

TEST(Quantity, OtherTextIsNoDuration) {
  for (const char* text :
       {"", "5", "h", "0h", "-1h", "5 m", "5min", "nan", "1e3s", "99999999999d"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(Quantity, DurationsAreShownInTwoUnits) {
  EXPECT_EQ(Duration(0.2), "1 s");
  EXPECT_EQ(Duration(59.5), "1 min 0 s");
  EXPECT_EQ(Duration(125), "2 min 5 s");
  EXPECT_EQ(Duration(72 * 3600), "72 h 0 min");
  EXPECT_EQ(Duration(72 * 3600 - 1), "72 h 0 min");
  EXPECT_EQ(Duration(71 * 3600 + 61), "71 h 2 min");
}

}  // namespace
}  // namespace emberkv
