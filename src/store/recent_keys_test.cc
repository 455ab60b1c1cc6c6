#include "store/recent_keys.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

// A key that belongs to the place, as the first bytes say, and is told from others by the next ones.
BlockHash KeyAt(uint64_t place, uint64_t mark) {
  BlockHash key;
  std::memcpy(key.bytes.data(), &place, sizeof place);
  std::memcpy(key.bytes.data() + sizeof place, &mark, sizeof mark);
  return key;
}

TEST(RecentKeys, AKeyIsKnownFromItsSecondTimeOn) {
  RecentKeys keys(64);
  EXPECT_FALSE(keys.Note(KeyAt(3, 1)));
  EXPECT_TRUE(keys.Note(KeyAt(3, 1)));
  EXPECT_TRUE(keys.Note(KeyAt(3, 1)));
  EXPECT_FALSE(keys.Note(KeyAt(4, 1))) << "another place";
  EXPECT_FALSE(keys.Note(KeyAt(3, 2))) << "another mark";
}

TEST(RecentKeys, TheOldestOfAPlaceIsForgottenFirst) {
  RecentKeys keys(64);
  for (uint64_t mark = 1; mark <= 5; ++mark) EXPECT_FALSE(keys.Note(KeyAt(3, mark)));
  for (uint64_t mark = 2; mark <= 5; ++mark) EXPECT_TRUE(keys.Note(KeyAt(3, mark))) << mark;
  EXPECT_FALSE(keys.Note(KeyAt(3, 1)));
}

TEST(RecentKeys, OtherPlacesPushNothingOut) {
  RecentKeys keys(64);
  EXPECT_FALSE(keys.Note(KeyAt(3, 1)));
  for (uint64_t place = 4; place < 16; ++place) {
    for (uint64_t mark = 1; mark <= 8; ++mark) EXPECT_FALSE(keys.Note(KeyAt(place, mark)));
  }
  EXPECT_TRUE(keys.Note(KeyAt(3, 1)));
}

TEST(RecentKeys, MoreKeysThanItHoldsAreNotAllKnown) {
  RecentKeys keys(64);
  size_t known = 0;
  for (int round = 0; round < 2; ++round) {
    known = 0;
    for (int i = 0; i < 1000; ++i) known += keys.Note(Sha256(std::to_string(i)));
  }
  EXPECT_LE(known, 64u);
}

}  // namespace
}  // namespace emberkv
