// The determinism contract (docs/architecture.md): chunking, batching, threads, decode steps and the
// instruction set change no bit of rows, windows, tails or logits.
#include <algorithm>

#include "base/isa.h"
#include "golden_data.h"
#include "layout/scratch.h"

namespace emberkv {
namespace {

using golden::Sequence;
using golden::TinyModel;

constexpr int64_t kLength = 600;

// Everything a run leaves behind.
struct Outcome {
  std::vector<float> logits;
  std::vector<uint8_t> pages, windows;
  std::vector<float> tails;

  bool operator==(const Outcome&) const = default;
};

Outcome OutcomeOf(const Sequence& sequence, std::vector<float> logits) {
  return {std::move(logits), sequence.AllPages(), sequence.windows(), sequence.tails()};
}

std::vector<int32_t> Tokens(const TinyModel& tiny, int64_t n) {
  return {tiny.tokens.begin(), tiny.tokens.begin() + n};
}

Outcome Prefill(const TinyModel& tiny, int64_t n, int64_t chunk, int threads, int64_t decoder_begin = 0) {
  Sequence sequence(tiny, Tokens(tiny, n));
  sequence.state()->decoder_begin = decoder_begin;
  ThreadPool pool(threads);
  std::vector<float> logits = golden::Run(*tiny.model, &sequence, 0, n, chunk, &pool);
  return OutcomeOf(sequence, std::move(logits));
}

class Invariance : public ::testing::TestWithParam<const char*> {};

TEST_P(Invariance, ChunksAndThreadsChangeNothing) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  for (int64_t decoder_begin : {int64_t{0}, kLength - tiny.config.sliding_window}) {
    const Outcome one_shot = Prefill(tiny, kLength, kLength, 1, decoder_begin);
    for (int threads : {1, 2}) {
      for (int64_t chunk : {1, 7, 64, 128, 513}) {
        if (chunk == 1 && threads == 2) continue;  // single rows: below, as decode steps
        EXPECT_EQ(Prefill(tiny, kLength, chunk, threads, decoder_begin), one_shot)
            << "chunk " << chunk << " threads " << threads;
      }
    }
  }
}

TEST_P(Invariance, DecodeStepsEqualPrefill) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  ThreadPool pool(2);
  Sequence sequence(tiny, Tokens(tiny, kLength));
  golden::Run(*tiny.model, &sequence, 0, 560, 560, &pool);
  for (int64_t n = 560; n < kLength; ++n) {
    std::vector<float> logits = golden::Run(*tiny.model, &sequence, n, n + 1, 1, &pool);
    if (n % 13 != 0 && n != kLength - 1) continue;
    const Outcome want = Prefill(tiny, n + 1, n + 1, 2);
    EXPECT_EQ(logits, want.logits) << n;
    EXPECT_EQ(sequence.windows(), want.windows) << n;
  }
}

TEST_P(Invariance, NeighboursInTheBatchChangeNothing) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  ThreadPool pool(2);
  const Outcome alone = Prefill(tiny, 300, 300, 1);
  // The same sequence beside another that decodes, and one in the middle of its own prefill.
  Sequence a(tiny, Tokens(tiny, 300)), b(tiny, Tokens(tiny, 500)), c(tiny, Tokens(tiny, 400));
  b.state()->decoder_begin = 333;
  golden::Run(*tiny.model, &b, 0, 200, 200, &pool);
  golden::Run(*tiny.model, &c, 0, 399, 399, &pool);
  Step step(&pool);
  step.spans = {{c.state(), 399, 400, true}, {a.state(), 0, 300, true}, {b.state(), 200, 500, true}};
  ASSERT_TRUE(tiny.model->Forward(&step).ok());
  const size_t vocab = static_cast<size_t>(tiny.config.vocab_size);
  ASSERT_EQ(step.logits.size(), 3 * vocab);
  const auto logits = [&](size_t i) {
    return std::vector<float>(step.logits.begin() + static_cast<int64_t>(i * vocab),
                              step.logits.begin() + static_cast<int64_t>((i + 1) * vocab));
  };
  EXPECT_EQ(OutcomeOf(a, logits(1)), alone);
  EXPECT_EQ(logits(0), Prefill(tiny, 400, 400, 1).logits);
  EXPECT_EQ(logits(2), Prefill(tiny, 500, 500, 1, 333).logits);
}

TEST_P(Invariance, InstructionSetsGiveTheSameBits) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  const Outcome want = Prefill(tiny, 200, 200, 2);
  for (Isa isa : SupportedIsas()) {
    ScopedIsa forced(isa);
    EXPECT_EQ(Prefill(tiny, 200, 200, 2), want) << IsaName(isa);
  }
}

TEST_P(Invariance, ExactReplayEqualsFullAndBoundedDoesNot) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  const int64_t w = tiny.config.sliding_window;
  const Outcome full = Prefill(tiny, kLength, 128, 2);
  const int64_t exact_begin = std::max<int64_t>(0, kLength - tiny.layout.decoder_layers() * w);
  const Outcome exact = Prefill(tiny, kLength, 128, 2, exact_begin);
  EXPECT_EQ(exact.logits, full.logits);
  EXPECT_EQ(exact.windows, full.windows);
  EXPECT_EQ(exact.pages, full.pages);
  const Outcome bounded = Prefill(tiny, kLength, 128, 2, kLength - w);
  EXPECT_NE(bounded.logits, full.logits);
  EXPECT_EQ(bounded.pages, full.pages);  // global KV depends on the encoder only
}

// Scores are tiled, so a call needs the same scratch late in a long context as early in it.
TEST_P(Invariance, ScratchDoesNotGrowWithTheContext) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  ThreadPool pool(1);  // scratch per thread depends on who works first
  Sequence sequence(tiny, Tokens(tiny, kLength));
  Step step(&pool);
  size_t early = 0;
  for (int64_t pos = 0; pos + 32 <= kLength; pos += 32) {
    step.spans = {{sequence.state(), pos, pos + 32, true}};
    ASSERT_TRUE(tiny.model->Forward(&step).ok());
    if (pos == 192) early = step.bytes();  // selection is full by now
  }
  EXPECT_GT(early, 0u);
  EXPECT_LE(step.bytes(), early + early / 10);  // which expert gets how many rows varies a little
  const uint64_t planned = StepScratch(tiny.config, tiny.layout, 32, 1).total();
  EXPECT_LE(step.bytes(), planned);
  EXPECT_GE(step.bytes(), planned / 2);  // a bound that says something
}

INSTANTIATE_TEST_SUITE_P(Golden, Invariance, ::testing::Values("tiny-random", "tiny-wide"));

}  // namespace
}  // namespace emberkv
