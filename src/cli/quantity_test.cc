#include "cli/quantity.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

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
