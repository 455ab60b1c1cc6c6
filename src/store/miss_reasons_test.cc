#include "store/miss_reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>

namespace emberkv {
namespace {

using ::testing::IsEmpty;

BlockHash Key(int number) { return Sha256(std::to_string(number)); }

TEST(MissReasons, ForgetsTheOldestBeyondItsCapacity) {
  MissReasons reasons(2);
  reasons.Record(Key(1), GetOutcome::kExpired);
  reasons.Record(Key(2), GetOutcome::kRefused);
  reasons.Record(Key(3), GetOutcome::kQuarantined);
  EXPECT_EQ(reasons.ReasonOf(Key(1)), GetOutcome::kNeverSeen);
  EXPECT_EQ(reasons.ReasonOf(Key(2)), GetOutcome::kRefused);
  EXPECT_EQ(reasons.ReasonOf(Key(3)), GetOutcome::kQuarantined);
  EXPECT_EQ(reasons.count(GetOutcome::kExpired), 0u);
}

TEST(MissReasons, ALaterReasonReplacesAnEarlierOneAndLivesAsLong) {
  MissReasons reasons(3);
  reasons.Record(Key(1), GetOutcome::kExpired);
  reasons.Record(Key(2), GetOutcome::kExpired);
  reasons.Record(Key(1), GetOutcome::kRefused);
  reasons.Record(Key(3), GetOutcome::kExpired);
  reasons.Record(Key(4), GetOutcome::kExpired);
  EXPECT_EQ(reasons.ReasonOf(Key(1)), GetOutcome::kRefused);
  EXPECT_EQ(reasons.ReasonOf(Key(2)), GetOutcome::kNeverSeen);
  EXPECT_EQ(reasons.count(GetOutcome::kRefused), 1u);
  reasons.Forget(Key(1));
  EXPECT_EQ(reasons.ReasonOf(Key(1)), GetOutcome::kNeverSeen);
  EXPECT_EQ(reasons.count(GetOutcome::kRefused), 0u);
}

// Rows on a medium that outlives the object.
class MissRows {
 public:
  void Write(std::span<const MissRow> rows) {
    for (const MissRow& row : rows) rows_[row.number] = row;
  }
  std::vector<MissRow> Read() const {
    std::vector<MissRow> rows;
    for (const auto& [number, row] : rows_) {
      if (row.reason != GetOutcome::kNeverSeen) rows.push_back(row);
    }
    return rows;
  }

 private:
  std::map<uint32_t, MissRow> rows_;
};

TEST(MissReasons, AreTheSameAfterTheirRowsWereReadBack) {
  constexpr size_t kCapacity = 7;
  constexpr int kKeys = 12;
  constexpr GetOutcome kReasons[] = {GetOutcome::kExpired, GetOutcome::kRefused, GetOutcome::kQuarantined};
  std::mt19937 random(1);
  MissRows rows;
  auto reasons = std::make_unique<MissReasons>(kCapacity);
  for (int step = 0; step < 2000; ++step) {
    const BlockHash key = Key(static_cast<int>(random() % kKeys));
    if (random() % 4 == 0) {
      reasons->Forget(key);
    } else {
      reasons->Record(key, kReasons[random() % 3]);
    }
    if (random() % 3 != 0) continue;
    rows.Write(reasons->TakeChanges());
    EXPECT_FALSE(reasons->has_changes());
    auto again = std::make_unique<MissReasons>(kCapacity);
    again->Adopt(rows.Read());
    for (int i = 0; i < kKeys; ++i) ASSERT_EQ(again->ReasonOf(Key(i)), reasons->ReasonOf(Key(i))) << step;
    for (const GetOutcome reason : kReasons) ASSERT_EQ(again->count(reason), reasons->count(reason)) << step;
    EXPECT_THAT(again->TakeChanges(), IsEmpty());
    if (random() % 8 == 0) reasons = std::move(again);  // goes on in the next process
  }
}

TEST(MissReasons, RowsThatCouldNotBeWrittenAreTakenAgain) {
  MissReasons reasons(4);
  reasons.Record(Key(1), GetOutcome::kExpired);
  const std::vector<MissRow> lost = reasons.TakeChanges();
  reasons.Forget(Key(1));
  reasons.Record(Key(2), GetOutcome::kRefused);
  reasons.PutBack(lost);
  MissRows rows;
  rows.Write(reasons.TakeChanges());
  MissReasons again(4);
  again.Adopt(rows.Read());
  EXPECT_EQ(again.ReasonOf(Key(1)), GetOutcome::kNeverSeen);
  EXPECT_EQ(again.ReasonOf(Key(2)), GetOutcome::kRefused);
}

TEST(MissReasons, RowsOfAnotherCapacityAreAdoptedAsFarAsTheyFit) {
  MissReasons large(100);
  for (int i = 0; i < 90; ++i) large.Record(Key(i), GetOutcome::kExpired);
  const std::vector<MissRow> rows = large.TakeChanges();
  MissReasons small(10);
  small.Adopt(rows);
  EXPECT_EQ(small.count(GetOutcome::kExpired), 10u);
  small.Record(Key(1000), GetOutcome::kRefused);
  EXPECT_EQ(small.ReasonOf(Key(1000)), GetOutcome::kRefused);
  MissReasons none(0);
  none.Adopt(rows);
  none.Record(Key(1), GetOutcome::kExpired);
  EXPECT_EQ(none.ReasonOf(Key(1)), GetOutcome::kNeverSeen);
}

}  // namespace
}  // namespace emberkv
