#include "base/duration.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

TEST(Duration, IsReadWithItsUnit) {
  EXPECT_EQ(*ParseDuration("72h"), std::chrono::hours(72));
  EXPECT_EQ(*ParseDuration("5m"), std::chrono::minutes(5));
  EXPECT_EQ(*ParseDuration("1.5d"), std::chrono::hours(36));
  EXPECT_EQ(*ParseDuration("30s"), std::chrono::seconds(30));
  EXPECT_EQ(*ParseDuration("250ms"), std::chrono::microseconds(250'000));
}

TEST(Duration, IsNoOtherText) {
  for (const char* text :
       {"", "5", "h", "0h", "-1h", "5 m", "5min", "nan", "1e3s", "99999999999d"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

}  // namespace
}  // namespace emberkv
