#include "server/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/fake_clock.h"

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::shared_ptr<const Tenant> TenantOf(const std::string& name, const TenantLimits& limits = {}) {
  return std::make_shared<const Tenant>(Tenant{name, false, limits});
}

// Work runs when the test says so, on its thread.
class AdmissionTest : public ::testing::Test {
 protected:
  void Open(const AdmissionOptions& options) {
    admission_ = std::make_unique<Admission>(
        options, &clock_, [this](std::function<void()> work) { started_.push_back(std::move(work)); });
  }

  std::optional<Refusal> Submit(const std::string& label, const std::string& tenant, int64_t pages = 1,
                                const std::atomic<bool>* is_gone = nullptr) {
    return Submit(label, TenantOf(tenant), pages, 0, is_gone);
  }
  std::optional<Refusal> Submit(const std::string& label, std::shared_ptr<const Tenant> tenant, int64_t pages,
                                int64_t tokens, const std::atomic<bool>* is_gone = nullptr) {
    QueuedWork work;
    work.tenant = std::move(tenant);
    work.pages = pages;
    work.prompt_tokens = tokens;
    work.is_gone = is_gone;
    work.run = [this, label] {
      clock_.Advance(run_us_);
      ran_.push_back(label);
    };
    work.drop = [this, label](const Refusal& refusal) {
      dropped_.push_back(label + " " + RefusalReasonName(refusal.reason));
    };
    return admission_->Submit(std::move(work));
  }

  // Lets the work that was started first run to its end.
  void RunOne() {
    ASSERT_FALSE(started_.empty());
    auto work = std::move(started_.front());
    started_.erase(started_.begin());
    work();
  }
  void RunAll() {
    while (!started_.empty()) RunOne();
  }

  FakeClock clock_;
  int64_t run_us_ = 0;
  std::vector<std::function<void()>> started_;
  std::vector<std::string> ran_;
  std::vector<std::string> dropped_;
  std::unique_ptr<Admission> admission_;
};

TEST_F(AdmissionTest, RunsAtMostMaxRunningAndQueuesTheRest) {
  Open({.max_running = 2, .max_queued = 8, .pool_pages = 100});
  for (const char* label : {"1", "2", "3"}) EXPECT_FALSE(Submit(label, "a"));
  EXPECT_EQ(started_.size(), 2u);
  EXPECT_EQ(admission_->stats().running, 2);
  EXPECT_EQ(admission_->stats().queued, 1);
  RunOne();
  EXPECT_EQ(admission_->stats().running, 2) << "the third took the place of the first";
  RunAll();
  EXPECT_THAT(ran_, ElementsAre("1", "2", "3"));
  EXPECT_EQ(admission_->stats().running, 0);
  EXPECT_EQ(admission_->stats().pages_promised, 0);
}

TEST_F(AdmissionTest, TenantsTakeTurnsHoweverManyRequestsOneSends) {
  Open({.max_running = 1, .max_queued = 16, .pool_pages = 100});
  for (const char* label : {"a1", "a2", "a3", "a4"}) EXPECT_FALSE(Submit(label, "a"));
  EXPECT_FALSE(Submit("b1", "b"));
  EXPECT_FALSE(Submit("b2", "b"));
  EXPECT_FALSE(Submit("c1", "c"));
  RunAll();
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3", "a4"));
}

TEST_F(AdmissionTest, AFullQueueRefusesWithATimeToComeBack) {
  Open({.max_running = 1, .max_queued = 1, .pool_pages = 100});
  run_us_ = 5'000'000;
  EXPECT_FALSE(Submit("0", "a"));
  RunAll();
  EXPECT_FALSE(Submit("1", "a"));
  EXPECT_FALSE(Submit("2", "a"));
  const auto refusal = Submit("3", "b");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, RefusalReason::kQueueFull);
  EXPECT_EQ(HttpStatusOf(refusal->reason), 503);
  EXPECT_EQ(refusal->retry_after_seconds, 10) << "one runs and one waits, of 5 s each";
  RunAll();
  EXPECT_THAT(ran_, ElementsAre("0", "1", "2"));
  EXPECT_THAT(dropped_, IsEmpty()) << "who is refused is told so by Submit alone";
}

TEST_F(AdmissionTest, WithoutAQueueWhatCanStartStillStarts) {
  Open({.max_running = 1, .max_queued = 0, .pool_pages = 100});
  EXPECT_FALSE(Submit("1", "a"));
  EXPECT_EQ(Submit("2", "a")->reason, RefusalReason::kQueueFull);
  RunAll();
  EXPECT_FALSE(Submit("3", "a"));
}

TEST_F(AdmissionTest, Case_P02_APromptThatNeverFitsIsRefusedWithTheNumbers) {
  Open({.max_running = 4, .max_queued = 4, .pool_pages = 10});
  const auto refusal = Submit("1", "a", 11);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, RefusalReason::kNeverFits);
  EXPECT_EQ(HttpStatusOf(refusal->reason), 400);
  EXPECT_EQ(refusal->retry_after_seconds, 0);
  EXPECT_THAT(refusal->message, HasSubstr("11 pages"));
  EXPECT_THAT(refusal->message, HasSubstr("has 10"));
  EXPECT_FALSE(Submit("2", "a", 10));
}

TEST_F(AdmissionTest, PagesAreNotPromisedTwice) {
  Open({.max_running = 4, .max_queued = 4, .pool_pages = 10});
  EXPECT_FALSE(Submit("1", "a", 6));
  EXPECT_FALSE(Submit("2", "a", 5));
  EXPECT_EQ(started_.size(), 1u);
  RunOne();
  EXPECT_EQ(started_.size(), 1u);
  EXPECT_EQ(admission_->stats().pages_promised, 5);
}

TEST_F(AdmissionTest, NobodyOvertakesALargeRequestWhoseTurnItIs) {
  Open({.max_running = 4, .max_queued = 4, .pool_pages = 10});
  EXPECT_FALSE(Submit("small 1", "a", 2));
  EXPECT_FALSE(Submit("large", "b", 9));
  EXPECT_FALSE(Submit("small 2", "c", 2));
  EXPECT_EQ(started_.size(), 1u);
  RunAll();
  EXPECT_THAT(ran_, ElementsAre("small 1", "large", "small 2"));
}

TEST_F(AdmissionTest, AClientThatLeavesFreesItsPlaceInTheQueue) {
  Open({.max_running = 1, .max_queued = 1, .pool_pages = 100});
  std::atomic<bool> is_gone = false;
  EXPECT_FALSE(Submit("1", "a"));
  EXPECT_FALSE(Submit("2", "a", 1, &is_gone));
  admission_->DropGone();
  EXPECT_THAT(dropped_, IsEmpty());
  is_gone = true;
  EXPECT_FALSE(Submit("3", "a"));
  EXPECT_THAT(dropped_, ElementsAre("2 client_gone"));
  RunAll();
  EXPECT_THAT(ran_, ElementsAre("1", "3"));
}

TEST_F(AdmissionTest, AClientThatLeavesLetsWaitingOnesBehindItStart) {
  Open({.max_running = 2, .max_queued = 4, .pool_pages = 10});
  std::atomic<bool> is_gone = false;
  EXPECT_FALSE(Submit("runs", "a", 5));
  EXPECT_FALSE(Submit("large", "a", 10, &is_gone));
  EXPECT_FALSE(Submit("small", "a", 5));
  EXPECT_EQ(started_.size(), 1u);
  is_gone = true;
  admission_->DropGone();
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(AdmissionTest, WorkOfAClientThatLeftBeforeItStartedIsDropped) {
  Open({.max_running = 1, .max_queued = 4, .pool_pages = 10});
  std::atomic<bool> is_gone = false;
  EXPECT_FALSE(Submit("1", "a", 1, &is_gone));
  is_gone = true;
  RunAll();
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_THAT(dropped_, ElementsAre("1 client_gone"));
  EXPECT_EQ(admission_->stats().running, 0);
}

TEST_F(AdmissionTest, MaxConcurrentCountsWhatRunsAndWhatWaits) {
  Open({.max_running = 1, .max_queued = 8, .pool_pages = 10});
  const auto tenant = TenantOf("a", {.max_concurrent = 2});
  EXPECT_FALSE(Submit("1", tenant, 1, 0));
  EXPECT_FALSE(Submit("2", tenant, 1, 0));
  const auto refusal = Submit("3", tenant, 1, 0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(HttpStatusOf(refusal->reason), 429);
  EXPECT_GT(refusal->retry_after_seconds, 0);
  EXPECT_FALSE(Submit("other", "b")) << "the limit is the tenant's own";
  RunOne();
  EXPECT_FALSE(Submit("4", tenant, 1, 0));
}

TEST_F(AdmissionTest, TokensPerMinuteFillUpAndDebtsAreWaitedFor) {
  Open({.max_running = 8, .max_queued = 8, .pool_pages = 10});
  const auto tenant = TenantOf("a", {.tokens_per_minute = 600});
  EXPECT_FALSE(Submit("1", tenant, 1, 500));
  EXPECT_FALSE(Submit("2", tenant, 1, 300)) << "overdraws: 200 in debt";
  admission_->Charge(*tenant, 100);
  auto refusal = Submit("3", tenant, 1, 1);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, RefusalReason::kTenantRate);
  EXPECT_EQ(HttpStatusOf(refusal->reason), 429);
  EXPECT_EQ(refusal->retry_after_seconds, 31) << "300 tokens at 10 a second, and a bit";
  clock_.Advance(30'000'000);
  EXPECT_TRUE(Submit("4", tenant, 1, 1));
  clock_.Advance(1'000'000);
  EXPECT_FALSE(Submit("5", tenant, 1, 1));
  EXPECT_FALSE(Submit("other", TenantOf("b", {.tokens_per_minute = 600}), 1, 600));
}

TEST_F(AdmissionTest, AnIdleTenantSavesUpOneMinuteAtMost) {
  Open({.max_running = 8, .max_queued = 8, .pool_pages = 10});
  const auto tenant = TenantOf("a", {.tokens_per_minute = 600});
  EXPECT_FALSE(Submit("1", tenant, 1, 1));
  clock_.Advance(3'600'000'000);
  EXPECT_FALSE(Submit("2", tenant, 1, 600));
  EXPECT_TRUE(Submit("3", tenant, 1, 1));
}

TEST_F(AdmissionTest, DrainingDropsWhatWaitsAndLetsWhatRunsFinish) {
  Open({.max_running = 1, .max_queued = 8, .pool_pages = 10});
  EXPECT_FALSE(Submit("1", "a"));
  EXPECT_FALSE(Submit("2", "a"));
  EXPECT_FALSE(Submit("3", "b"));
  admission_->Drain();
  EXPECT_THAT(dropped_, ElementsAre("2 draining", "3 draining"));
  const auto refusal = Submit("4", "a");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(HttpStatusOf(refusal->reason), 503);
  EXPECT_GT(refusal->retry_after_seconds, 0);
  EXPECT_FALSE(admission_->WaitIdle(std::chrono::milliseconds(0)));
  RunAll();
  EXPECT_TRUE(admission_->WaitIdle(std::chrono::milliseconds(0)));
  EXPECT_THAT(ran_, ElementsAre("1"));
}

TEST_F(AdmissionTest, CountsEveryOutcome) {
  Open({.max_running = 1, .max_queued = 0, .pool_pages = 10});
  EXPECT_FALSE(Submit("1", "a"));
  EXPECT_TRUE(Submit("2", "a"));
  EXPECT_TRUE(Submit("3", "a", 11));
  const AdmissionStats stats = admission_->stats();
  EXPECT_EQ(stats.admitted, 1u);
  EXPECT_EQ(stats.refused[static_cast<int>(RefusalReason::kQueueFull)], 1u);
  EXPECT_EQ(stats.refused[static_cast<int>(RefusalReason::kNeverFits)], 1u);
}

TEST(Admission, ManyThreadsKeepItsBounds) {
  SystemClock clock;
  std::mutex mutex;
  std::vector<std::thread> threads;  // guarded by mutex
  std::atomic<int> running = 0, most = 0, ran = 0, refused = 0;
  Admission admission({.max_running = 3, .max_queued = 5, .pool_pages = 4}, &clock,
                      [&](std::function<void()> work) {
                        const std::lock_guard lock(mutex);
                        threads.emplace_back(std::move(work));
                      });
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 50; ++i) {
        QueuedWork work;
        work.tenant = TenantOf(std::to_string(client));
        work.pages = 1 + i % 2;
        work.run = [&] {
          const int now = ++running;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          std::this_thread::yield();
          --running;
          ++ran;
        };
        work.drop = [&](const Refusal&) { ++refused; };
        if (admission.Submit(std::move(work))) ++refused;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(admission.WaitIdle(std::chrono::minutes(1)));
  {
    const std::lock_guard lock(mutex);
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran + refused, 200);
  EXPECT_LE(most, 3);
  EXPECT_EQ(admission.stats().pages_promised, 0);
}

}  // namespace
}  // namespace emberkv
