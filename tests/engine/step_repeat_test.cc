// A step of several sequences that fails is run again, one by one: with the real model, from the caches as
// they were before, to the same bits.
#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/step_scheduler.h"
#include "golden/golden_data.h"

namespace emberkv {
namespace {

using golden::Sequence;
using golden::TinyModel;

constexpr int kStepTokens = 512;

struct Held {
  int64_t begin;  // computed before
  int64_t end;    // of the span
  int64_t decoder_begin;
};

// Around window and block boundaries, within an open group and not, the decoder beginning inside and before.
constexpr Held kHeld[] = {{0, 70, 0},      {129, 160, 0}, {200, 201, 0},
                          {255, 300, 280}, {300, 303, 0}, {33, 65, 40}};

TEST(StepRepeat, GivesTheBitsOfAStepThatDidNotFail) {
  for (const char* name : {"tiny-random", "tiny-wide"}) {
    const TinyModel& tiny = golden::Tiny(name);
    ThreadPool pool(2);
    std::atomic<int> failed = 0;
    std::atomic<std::latch*> hold = nullptr;
    StepScheduler scheduler(
        [&](Step* step) -> Status {
          if (std::latch* const gate = hold.exchange(nullptr)) gate->wait();
          EMBERKV_RETURN_IF_ERROR(tiny.model->Forward(step));
          if (step->spans.size() == 1) return Status::Ok();
          ++failed;
          return Unavailable("the last layer of this step");  // windows, tails and pages are written by now
        },
        &tiny.layout, &pool, kStepTokens);
    std::vector<std::unique_ptr<Sequence>> together, alone;
    std::vector<std::vector<float>> want;
    for (const Held& held : kHeld) {
      const std::vector<int32_t> tokens(tiny.tokens.begin(), tiny.tokens.begin() + held.end);
      for (auto* sequences : {&together, &alone}) {
        auto sequence = std::make_unique<Sequence>(tiny, tokens);
        if (held.begin > 0) golden::Run(*tiny.model, sequence.get(), 0, held.begin, held.begin, &pool);
        sequence->state()->decoder_begin = held.decoder_begin;
        sequences->push_back(std::move(sequence));
      }
      want.push_back(golden::Run(*tiny.model, alone.back().get(), held.begin, held.end, held.end, &pool));
    }

    // All but the first wait while the first is under way, so that they share a step.
    std::latch opens(1);
    hold = &opens;
    std::vector<StepOutcome> outcomes(std::size(kHeld));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < std::size(kHeld); ++i) {
      threads.emplace_back([&, i] {
        StepSeat seat(&scheduler, 0);
        outcomes[i] = scheduler.Run(&seat, {together[i]->state(), kHeld[i].begin, kHeld[i].end, true});
      });
      while (i == 0 ? hold != nullptr : scheduler.stats().waiting != i) std::this_thread::yield();
    }
    opens.count_down();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(scheduler.stats().most_spans, std::size(kHeld) - 1);
    for (size_t i = 0; i < std::size(kHeld); ++i) {
      ASSERT_TRUE(outcomes[i].status.ok()) << outcomes[i].status.ToString();
      EXPECT_EQ(outcomes[i].logits, want[i]) << name << " " << i;
      EXPECT_EQ(together[i]->windows(), alone[i]->windows()) << name << " " << i;
      EXPECT_EQ(together[i]->tails(), alone[i]->tails()) << name << " " << i;
      EXPECT_EQ(together[i]->AllPages(), alone[i]->AllPages()) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace emberkv
