// The engine's equalities: what must not change a single bit of logits and caches.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "ember_tiny.h"

namespace emberkv {
namespace {

constexpr ReplayMode kAllModes[] = {ReplayMode::kBounded, ReplayMode::kExact, ReplayMode::kFull};

SessionBytes Prefilled(const Engine& engine, const std::vector<int32_t>& tokens, ReplayMode replay) {
  const auto session = Open(engine);
  const Status status = PrefillAs(*session, tokens, replay);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return BytesOf(*session);
}

TEST(SessionBits, ChunksAndThreadsChangeNothing) {
  const std::vector<int32_t> tokens = PromptTokens(577);  // odd: a compressor group stays open
  std::vector<SessionBytes> wanted;
  for (const ReplayMode mode : kAllModes) wanted.push_back(Prefilled(SharedTiny(), tokens, mode));
  for (const int threads : {1, 2}) {
    for (const int chunk : {1, 7, 64, 128, 513, 4096}) {
      const auto engine = LoadTiny(TinyOptions(threads, chunk));
      ASSERT_NE(engine, nullptr);
      EXPECT_EQ(engine->num_threads(), threads);
      for (size_t mode = 0; mode < wanted.size(); ++mode) {
        ExpectSameBytes(wanted[mode], Prefilled(*engine, tokens, kAllModes[mode]),
                        std::to_string(threads) + " threads, chunk " + std::to_string(chunk) +
                            ", " + ReplayModeName(kAllModes[mode]));
      }
    }
  }
}

TEST(SessionBits, DecodeEqualsPrefill) {
  const auto decoded = Open(SharedTiny());
  ASSERT_TRUE(PrefillAs(*decoded, PromptTokens(300), ReplayMode::kFull).ok());
  GenerateOptions options;
  options.max_tokens = 60;
  options.stops_at_eos = false;
  options.sampler = {1.5, 1, 11};  // greedy would repeat itself
  const auto answer = decoded->Generate(options);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  ASSERT_EQ(decoded->stats().decode_tokens, 59);
  ASSERT_TRUE(PrefillAs(*decoded, PromptTokens(1), ReplayMode::kFull).ok());
  ASSERT_EQ(decoded->tokens().size(), 361u);
  ExpectSameBytes(BytesOf(*decoded), Prefilled(SharedTiny(), decoded->tokens(), ReplayMode::kFull),
                  "59 decode steps");
}

TEST(SessionBits, ExactReplayEqualsFullAndBoundedDoesNot) {
  const std::vector<int32_t> tokens = PromptTokens(1001);
  const SessionBytes full = Prefilled(SharedTiny(), tokens, ReplayMode::kFull);
  ExpectSameBytes(full, Prefilled(SharedTiny(), tokens, ReplayMode::kExact), "exact");
  const SessionBytes bounded = Prefilled(SharedTiny(), tokens, ReplayMode::kBounded);
  EXPECT_EQ(bounded.pages, full.pages);  // global KV is the encoder's work alone
  EXPECT_NE(bounded.logits, full.logits);
  EXPECT_NE(bounded.windows, full.windows);
}

// Continuing with `exact` finds the decoder rows that it needs, or runs them.
TEST(SessionBits, ExactReplayInPiecesEqualsFull) {
  const std::vector<int32_t> tokens = PromptTokens(1001);
  const SessionBytes full = Prefilled(SharedTiny(), tokens, ReplayMode::kFull);
  const int64_t decoder_rows =
      int64_t{SharedTiny().layout().decoder_layers()} * SharedTiny().config().sliding_window;
  for (const int64_t last_piece : {int64_t{1}, int64_t{40}, decoder_rows, decoder_rows + 100}) {
    const auto session = Open(SharedTiny());
    const auto cut = tokens.end() - last_piece;
    ASSERT_TRUE(PrefillAs(*session, {tokens.begin(), cut}, ReplayMode::kFull).ok());
    ASSERT_TRUE(PrefillAs(*session, {cut, tokens.end()}, ReplayMode::kExact).ok());
    EXPECT_EQ(session->stats().replay_note, "");
    ExpectSameBytes(full, BytesOf(*session), std::to_string(last_piece) + " tokens last");
  }
}

TEST(SessionBits, APrefillCancelledAnywhereGoesOnToTheSameResult) {
  const std::vector<int32_t> tokens = PromptTokens(301);
  const auto engine = LoadTiny(TinyOptions(2, 40));
  ASSERT_NE(engine, nullptr);
  for (const ReplayMode mode : kAllModes) {
    const SessionBytes wanted = Prefilled(*engine, tokens, mode);
    std::vector<int64_t> stops = {0};  // before the first step, and after each but the last
    const auto counted = Open(*engine);
    PrefillOptions counting;
    counting.replay = mode;
    counting.progress = [&](int64_t done, int64_t) { stops.push_back(done); };
    ASSERT_TRUE(counted->Prefill(tokens, counting).ok());
    stops.pop_back();
    ASSERT_GE(stops.size(), 8u);
    for (const int64_t stop : stops) {
      const auto session = Open(*engine);
      std::atomic<bool> cancel = stop == 0;
      PrefillOptions options;
      options.replay = mode;
      options.cancel = &cancel;
      options.progress = [&](int64_t done, int64_t) { cancel = done == stop; };
      ASSERT_EQ(session->Prefill(tokens, options).code(), StatusCode::kCancelled);
      ASSERT_EQ(session->tokens().size(), static_cast<size_t>(stop));
      EXPECT_EQ(session->stats().pages, (stop + 127) / 128);
      EXPECT_EQ(session->Generate().status().code(), StatusCode::kInvalidArgument);
      ASSERT_TRUE(PrefillAs(*session, {tokens.begin() + stop, tokens.end()}, mode).ok());
      ExpectSameBytes(wanted, BytesOf(*session), std::to_string(stop) + " tokens, " + ReplayModeName(mode));
    }
  }
}

TEST(SessionBits, InterleavedSessionsDoNotDisturbEachOther) {
  const std::vector<int32_t> a = PromptTokens(500, 1), b = PromptTokens(431, 2);
  const auto first = Open(SharedTiny()), second = Open(SharedTiny());
  const auto part = [](const std::vector<int32_t>& tokens, size_t i) {
    const auto at = [&](size_t k) { return tokens.begin() + k * tokens.size() / 5; };
    return std::vector<int32_t>(at(i), at(i + 1));
  };
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(PrefillAs(*first, part(a, i), ReplayMode::kFull).ok());
    ASSERT_TRUE(PrefillAs(*second, part(b, i), ReplayMode::kFull).ok());
  }
  ExpectSameBytes(Prefilled(SharedTiny(), a, ReplayMode::kFull), BytesOf(*first), "first");
  ExpectSameBytes(Prefilled(SharedTiny(), b, ReplayMode::kFull), BytesOf(*second), "second");
}

TEST(SessionBits, SessionsOnDifferentThreadsDoNotDisturbEachOther) {
  const auto engine = LoadTiny(TinyOptions(2, 50));
  ASSERT_NE(engine, nullptr);
  std::vector<SessionBytes> given(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < given.size(); ++i) {
    threads.emplace_back([&, i] {
      given[i] = Prefilled(*engine, PromptTokens(400 + i, i), ReplayMode::kBounded);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < given.size(); ++i) {
    ExpectSameBytes(Prefilled(SharedTiny(), PromptTokens(400 + i, i), ReplayMode::kBounded),
                    given[i], "thread " + std::to_string(i));
  }
}

TEST(SessionBits, APageOfAnEndedSessionComesBackClean) {
  EngineOptions options = TinyOptions();
  options.kv_budget_bytes = SharedTiny().layout().page_bytes * 4;
  const auto engine = LoadTiny(options);
  ASSERT_NE(engine, nullptr);
  { Prefilled(*engine, PromptTokens(512, 3), ReplayMode::kFull); }
  EXPECT_EQ(engine->pool_stats().pages_in_use, 0u);
  ExpectSameBytes(Prefilled(SharedTiny(), PromptTokens(301), ReplayMode::kFull),
                  Prefilled(*engine, PromptTokens(301), ReplayMode::kFull), "second session");
}

}  // namespace
}  // namespace emberkv
