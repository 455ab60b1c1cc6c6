#include "store/retention_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Verdict = RetentionBook::Verdict;

BlockHash Key(int number) { return Sha256(std::to_string(number)); }

std::vector<BlockHash> KeysOf(const std::vector<RetentionBook::Retired>& retired) {
  std::vector<BlockHash> keys;
  for (const auto& page : retired) keys.push_back(page.key);
  return keys;
}

TEST(RetentionBook, RefusesWhenFullOfPromises) {
  RetentionBook book(100, 10);
  EXPECT_EQ(book.Admit(Key(1), 60, 0).verdict, Verdict::kAdmitted);
  EXPECT_EQ(book.Admit(Key(2), 41, 0).verdict, Verdict::kFull);
  EXPECT_EQ(book.Admit(Key(2), 40, 0).verdict, Verdict::kAdmitted);
  EXPECT_EQ(book.used_bytes(), 100u);
  EXPECT_EQ(book.Admit(Key(3), 1, 9).verdict, Verdict::kFull);
  EXPECT_EQ(book.pages(), 2u);
}

TEST(RetentionBook, ATenantsLimitIsForItsPromisesAlone) {
  RetentionBook book(100, 10);
  const StoreLimits limits{.max_bytes = 30};
  EXPECT_EQ(book.Admit(Key(1), 20, 0, Key(-1), limits).verdict, Verdict::kAdmitted);
  EXPECT_EQ(book.Admit(Key(2), 11, 0, Key(-1), limits).verdict, Verdict::kTenantFull);
  EXPECT_EQ(book.Admit(Key(2), 11, 0, Key(-2), limits).verdict, Verdict::kAdmitted);
  EXPECT_EQ(book.Admit(Key(3), 30, 10, Key(-1), limits).verdict, Verdict::kAdmitted)
      << "the other has expired";
  book.Extend(Key(1), 11);
  EXPECT_EQ(book.Admit(Key(4), 1, 11, Key(-1), limits).verdict, Verdict::kTenantFull);
  book.Remove(Key(1));
  book.Remove(Key(3));
  EXPECT_EQ(book.tenants(11).size(), 1u);
  EXPECT_EQ(book.Admit(Key(4), 30, 11, Key(-1), limits).verdict, Verdict::kAdmitted);
}

TEST(RetentionBook, APageKeepsItsOwnRetention) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 1, 0, Key(-1), {.retention = std::chrono::microseconds(4)});
  book.Admit(Key(2), 2, 0, Key(-1), {.retention = std::chrono::hours(24 * 1000)});
  EXPECT_EQ(book.promised_bytes(3), 3u);
  EXPECT_EQ(book.promised_bytes(4), 2u);
  book.Extend(Key(1), 100);
  EXPECT_EQ(book.promised_bytes(103), 3u);
  EXPECT_EQ(book.promised_bytes(104), 2u);
  EXPECT_EQ(book.promised_bytes(kMaxRetention.count() - 1), 2u);
  EXPECT_EQ(book.promised_bytes(kMaxRetention.count()), 0u) << "no page is kept longer";
}

TEST(RetentionBook, ARenewedPageHasItsNewRetentionAndNoEarlierDeadline) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 1, 0);
  book.Renew(Key(1), 1, {.retention = std::chrono::microseconds(3)});
  EXPECT_EQ(book.promised_bytes(9), 1u);
  EXPECT_EQ(book.promised_bytes(10), 0u);
  book.Extend(Key(1), 20);
  EXPECT_EQ(book.promised_bytes(22), 1u);
  EXPECT_EQ(book.promised_bytes(23), 0u);
  book.Renew(Key(1), 30, {});
  EXPECT_EQ(book.promised_bytes(39), 1u);
}

TEST(RetentionBook, APromiseEndsAtItsDeadlineAndNotBefore) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 100, 5);
  EXPECT_EQ(book.promised_bytes(14), 100u);
  EXPECT_EQ(book.promised_bytes(15), 0u);
  EXPECT_EQ(book.used_bytes(), 100u);
}

TEST(RetentionBook, TakesNoMoreVictimsThanNeededOldestDeadlineFirst) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 30, 0);
  book.Admit(Key(2), 30, 1);
  book.Admit(Key(3), 30, 2);
  book.Extend(Key(1), 3);
  const auto admission = book.Admit(Key(4), 40, 20);
  EXPECT_EQ(admission.verdict, Verdict::kAdmitted);
  EXPECT_THAT(KeysOf(admission.victims), ElementsAre(Key(2)));
  EXPECT_EQ(admission.victims[0].deadline_us, 11);
  EXPECT_EQ(book.used_bytes(), 100u);
}

TEST(RetentionBook, Case_Q04_ARefusedPageCostsNobodyElseTheirs) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 30, 0);   // expires
  book.Admit(Key(2), 60, 15);  // does not
  EXPECT_EQ(book.Admit(Key(3), 41, 20).verdict, Verdict::kFull);
  EXPECT_EQ(book.Admit(Key(3), 101, 20).verdict, Verdict::kTooLarge);
  EXPECT_EQ(book.pages(), 2u);
  EXPECT_THAT(KeysOf(book.Admit(Key(3), 40, 20).victims), ElementsAre(Key(1)));
}

TEST(RetentionBook, ServingAnExpiredPagePromisesItAgain) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 100, 0);
  EXPECT_EQ(book.promised_bytes(10), 0u);
  book.Extend(Key(1), 12);
  EXPECT_EQ(book.promised_bytes(21), 100u);
  EXPECT_EQ(book.Admit(Key(2), 1, 21).verdict, Verdict::kFull);
  EXPECT_EQ(book.Admit(Key(2), 1, 22).verdict, Verdict::kAdmitted);
}

TEST(RetentionBook, RetiresExpiredPagesOnly) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 10, 0);
  book.Admit(Key(2), 10, 5);
  EXPECT_THAT(book.RetireExpired(9), IsEmpty());
  EXPECT_THAT(KeysOf(book.RetireExpired(12)), ElementsAre(Key(1)));
  EXPECT_EQ(book.used_bytes(), 10u);
}

TEST(RetentionBook, Case_Q10_TimeThatRunsBackwardsShortensNoPromise) {
  RetentionBook book(100, 10);
  book.Admit(Key(1), 50, 100);
  book.Admit(Key(2), 50, 0);  // as at 100
  EXPECT_EQ(book.promised_bytes(109), 100u);
  EXPECT_EQ(book.promised_bytes(110), 0u);
}

// Against the definition: a list of pages, searched.
TEST(RetentionBook, AgreesWithASearchedList) {
  struct Page {
    uint64_t bytes;
    int64_t deadline_us;
  };
  std::mt19937 random(7);
  for (int run = 0; run < 20; ++run) {
    RetentionBook book(1000, 50);
    std::map<int, Page> pages;
    int64_t now_us = 0;
    const auto promised = [&] {
      uint64_t sum = 0;
      for (const auto& [key, page] : pages) sum += page.deadline_us > now_us ? page.bytes : 0;
      return sum;
    };
    const auto used = [&] {
      uint64_t sum = 0;
      for (const auto& [key, page] : pages) sum += page.bytes;
      return sum;
    };
    for (int step = 0; step < 500; ++step) {
      now_us += static_cast<int64_t>(random() % 10);
      const int key = static_cast<int>(random() % 40);
      if (!pages.contains(key)) {
        const uint64_t bytes = 1 + random() % 200;
        const auto admission = book.Admit(Key(key), bytes, now_us);
        ASSERT_EQ(admission.verdict == Verdict::kAdmitted, promised() + bytes <= 1000);
        for (const auto& victim : admission.victims) {
          ASSERT_LE(victim.deadline_us, now_us);
          ASSERT_EQ(std::erase_if(pages, [&](const auto& p) { return Key(p.first) == victim.key; }),
                    1u);
        }
        if (admission.verdict == Verdict::kAdmitted) pages[key] = {bytes, now_us + 50};
      } else if (random() % 4 == 0) {
        book.Remove(Key(key));
        pages.erase(key);
      } else {
        book.Extend(Key(key), now_us);
        pages[key].deadline_us = now_us + 50;
      }
      ASSERT_EQ(book.promised_bytes(now_us), promised());
      ASSERT_EQ(book.used_bytes(), used());
      ASSERT_LE(book.used_bytes(), 1000u);
    }
  }
}

}  // namespace
}  // namespace emberkv
