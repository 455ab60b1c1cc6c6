#include "engine/step_scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/failing_allocation_for_tests.h"

namespace emberkv {
namespace {

constexpr int64_t kWindow = 4;
constexpr size_t kRowBytes = 3;
constexpr int kLayers = 2;
constexpr int kStepTokens = 16;

CacheLayout SmallLayout() {
  CacheLayout layout;
  layout.layers.resize(kLayers);
  layout.window_row_bytes = kRowBytes;
  layout.window_bytes_per_layer = kRowBytes * kWindow;
  layout.tail_bytes = 2 * sizeof(float);
  return layout;
}

struct Sequence {
  explicit Sequence(int64_t begin_in) : begin(begin_in), windows(kLayers * kRowBytes * kWindow), tails(2) {
    std::iota(windows.begin(), windows.end(), static_cast<uint8_t>(begin));
    state.windows = windows.data();
    state.tails = tails.data();
  }
  StepRequest Rows(int64_t rows) { return {&state, begin, begin + rows, true}; }

  const int64_t begin;
  std::vector<uint8_t> windows;
  std::vector<float> tails;
  SequenceState state;
};

// Reads and writes windows and tails as the model does: a span's result depends on the rows that its first
// row sees and on the open group, which the span then overwrites.
class SmallModel {
 public:
  // Steps with these sequences fail, after all was written.
  std::set<const SequenceState*> failing;
  std::set<const SequenceState*> throwing;
  std::atomic<std::latch*> hold = nullptr;  // the next step waits until it is open

  Status Forward(Step* step) {
    step->logits.clear();
    for (StepSpan& span : step->spans) {
      step->logits.push_back(static_cast<float>(Compute(span)));
      span.token_layers = span.end - span.begin;
    }
    if (std::latch* const gate = hold.exchange(nullptr)) gate->wait();
    for (const StepSpan& span : step->spans) {
      if (throwing.contains(span.sequence)) throw std::bad_alloc();
      if (failing.contains(span.sequence)) return Internal("a row that is not finite");
    }
    return Status::Ok();
  }

 private:
  static uint8_t* Row(const StepSpan& span, int layer, int64_t pos) {
    return span.sequence->windows + (layer * kWindow + pos % kWindow) * static_cast<int64_t>(kRowBytes);
  }

  static uint32_t Compute(const StepSpan& span) {
    uint32_t sum = 1;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int64_t pos = span.begin - kWindow + 1; pos < span.begin; ++pos) {
        for (size_t i = 0; i < kRowBytes; ++i) sum = (sum * 31 + Row(span, layer, pos)[i]) % 65521;
      }
    }
    if (span.begin % 2 == 1) sum = (sum * 31 + static_cast<uint32_t>(span.sequence->tails[0])) % 65521;
    for (int64_t pos = span.begin; pos < span.end; ++pos) {
      if (pos % 2 == 0) span.sequence->tails[0] = static_cast<float>(sum + pos);
      for (int layer = 0; layer < kLayers; ++layer) {
        std::fill_n(Row(span, layer, pos), kRowBytes, static_cast<uint8_t>(sum + pos));
      }
    }
    return sum;
  }
};

class StepSchedulerTest : public ::testing::Test {
 protected:
  StepOutcome Run(Sequence* sequence, int64_t rows) {
    StepSeat seat(&scheduler_, 0);
    return scheduler_.Run(&seat, sequence->Rows(rows));
  }
  void AwaitWaiting(uint64_t count) {
    while (scheduler_.stats().waiting != count) std::this_thread::yield();
  }

  // Runs the requests in one step: all wait, in order, while another step is under way.
  std::vector<StepOutcome> RunTogether(const std::vector<std::pair<Sequence*, int64_t>>& requests) {
    std::latch opens(1);
    model_.hold = &opens;
    Sequence other(8);
    std::vector<StepOutcome> outcomes(requests.size());
    std::vector<std::thread> threads;
    threads.emplace_back([&] { EXPECT_TRUE(Run(&other, 1).status.ok()); });
    while (model_.hold != nullptr) std::this_thread::yield();
    for (size_t i = 0; i < requests.size(); ++i) {
      threads.emplace_back([&, i] { outcomes[i] = Run(requests[i].first, requests[i].second); });
      AwaitWaiting(i + 1);
    }
    opens.count_down();
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  const CacheLayout layout_ = SmallLayout();
  SmallModel model_;
  ThreadPool threads_{1};
  const StepScheduler::Forward forward_ = [this](Step* step) { return model_.Forward(step); };
  StepScheduler scheduler_{forward_, &layout_, &threads_, kStepTokens};
};

void ExpectSame(const StepOutcome& got, const StepOutcome& want) {
  EXPECT_TRUE(got.status.ok()) << got.status.ToString();
  EXPECT_EQ(got.end, want.end);
  EXPECT_EQ(got.logits, want.logits);
  EXPECT_EQ(got.token_layers, want.token_layers);
}

TEST_F(StepSchedulerTest, AFailingSpanFailsAlone) {
  Sequence prefill(13), decode(21), bad(40), long_prefill(6), bad_decode(17);
  model_.failing = {&bad.state, &bad_decode.state};
  const auto outcomes =
      RunTogether({{&prefill, 2}, {&bad, 3}, {&decode, 1}, {&bad_decode, 1}, {&long_prefill, 5}});
  EXPECT_EQ(scheduler_.stats().most_spans, 5u);
  EXPECT_EQ(outcomes[1].status.message(), "a row that is not finite");
  EXPECT_EQ(outcomes[3].status.message(), "a row that is not finite");
  // The others have what they have alone, in their results and in what the next step reads.
  for (const auto& [sequence, rows, outcome] : {std::tuple{&prefill, 2, &outcomes[0]},
                                                {&decode, 1, &outcomes[2]},
                                                {&long_prefill, 5, &outcomes[4]}}) {
    Sequence alone(sequence->begin);
    ExpectSame(*outcome, Run(&alone, rows));
    EXPECT_EQ(sequence->windows, alone.windows);
    EXPECT_EQ(sequence->tails, alone.tails);
  }
}

TEST_F(StepSchedulerTest, AStepWithoutMemoryFailsItsRequestAndNoOther) {
  Sequence bad(4), good(9);
  model_.throwing = {&bad.state};
  const auto outcomes = RunTogether({{&bad, 2}, {&good, 2}});
  EXPECT_EQ(outcomes[0].status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(outcomes[1].status.ok());
  EXPECT_EQ(Run(&bad, 1).status.code(), StatusCode::kResourceExhausted);  // alone in its step
  EXPECT_TRUE(Run(&good, 1).status.ok());
}

// Each allocation of the thread that leads fails once: its request may fail, and whoever waits goes on.
TEST_F(StepSchedulerTest, ALeaderWithoutMemoryMakesWayForTheNext) {
  int failures = 0;
  bool has_failed = true;
  for (int allocation = 1; has_failed; ++allocation) {
    StepScheduler scheduler(forward_, &layout_, &threads_, kStepTokens);
    const auto run = [&scheduler](Sequence* sequence, int64_t rows) {
      StepSeat seat(&scheduler, 0);
      return scheduler.Run(&seat, sequence->Rows(rows));
    };
    std::latch opens(1);
    model_.hold = &opens;
    Sequence first(8), poor(5), next(7);
    std::thread holder([&] { EXPECT_TRUE(run(&first, 1).status.ok()); });
    while (model_.hold != nullptr) std::this_thread::yield();
    std::atomic<bool> is_over = false;
    std::thread leader([&] {
      g_failing_allocation = allocation;
      const StepOutcome outcome = run(&poor, 3);
      has_failed = std::exchange(g_failing_allocation, 0) == 0;
      failures += outcome.status.ok() ? 0 : 1;
      EXPECT_TRUE(outcome.status.ok() || outcome.status.code() == StatusCode::kResourceExhausted);
      is_over = true;
    });
    while (scheduler.stats().waiting == 0 && !is_over) std::this_thread::yield();
    const uint64_t before = scheduler.stats().waiting;
    std::thread follower([&] { EXPECT_TRUE(run(&next, 2).status.ok()) << allocation; });
    while (scheduler.stats().waiting == before) std::this_thread::yield();
    opens.count_down();
    for (std::thread* thread : {&holder, &leader, &follower}) thread->join();
  }
  EXPECT_GE(failures, 3);  // to wait, and to pick the batch
}

}  // namespace
}  // namespace emberkv
