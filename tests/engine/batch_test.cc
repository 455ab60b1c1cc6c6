// Sessions that run at once: their steps are packed together, and none of them can tell.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "ember_tiny.h"

namespace emberkv {
namespace {

constexpr int64_t kBlock = kDefaultBlockSize;

struct Answer {
  Status status;
  std::vector<int32_t> tokens;
  SessionBytes bytes;            // after the prefill
  std::vector<uint8_t> windows;  // after the answer
};

struct Job {
  std::vector<int32_t> prompt;
  ReplayMode replay = ReplayMode::kBounded;
  double temperature = 0;
  int64_t max_tokens = 40;
};

Answer RunJob(const Engine& engine, const Job& job) {
  SessionOptions options;
  options.reuses_prefixes = false;
  const auto session = engine.OpenSession(options);
  Answer answer;
  answer.status = PrefillAs(**session, job.prompt, job.replay);
  if (!answer.status.ok()) return answer;
  answer.bytes = BytesOf(**session);
  GenerateOptions generate;
  generate.max_tokens = job.max_tokens;
  generate.stops_at_eos = false;
  generate.sampler.temperature = job.temperature;
  generate.sampler.seed = 7;
  Result<Generation> generation = (*session)->Generate(generate);
  answer.status = generation.status();
  if (answer.status.ok()) answer.tokens = generation->tokens;
  answer.windows = BytesOf(**session).windows;
  return answer;
}

std::unique_ptr<Session> OpenFor(const Engine& engine, const TenantName& tenant) {
  SessionOptions options;
  options.tenant = tenant;
  return std::move(engine.OpenSession(options)).value();
}

std::vector<Job> MixedJobs() {
  std::vector<Job> jobs;
  for (size_t i = 0; i < 12; ++i) {
    jobs.push_back({PromptTokens(17 + 97 * i, i % 5), static_cast<ReplayMode>(i % 3), i % 4 == 0 ? 0.8 : 0.0,
                    static_cast<int64_t>(20 + 3 * i)});
  }
  return jobs;
}

TEST(Batching, SessionsThatRunAtOnceHaveTheBitsOfSessionsAlone) {
  const std::vector<Job> jobs = MixedJobs();
  const auto alone_engine = LoadTiny(TinyOptions(1, 512));
  std::vector<Answer> alone;
  for (const Job& job : jobs) alone.push_back(RunJob(*alone_engine, job));
  for (const int step_tokens : {512, 64}) {
    const auto engine = LoadTiny(TinyOptions(2, step_tokens));
    std::vector<Answer> together(jobs.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < jobs.size(); ++i) {
      threads.emplace_back([&, i] { together[i] = RunJob(*engine, jobs[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_TRUE(together[i].status.ok()) << together[i].status.ToString();
      EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
      EXPECT_EQ(together[i].windows, alone[i].windows) << i;
      ExpectSameBytes(together[i].bytes, alone[i].bytes, "job " + std::to_string(i));
    }
    const StepSchedulerStats stats = engine->scheduler_stats();
    EXPECT_GT(stats.packed_steps, 0u);
    EXPECT_GT(stats.most_spans, 4u);
    EXPECT_LT(stats.steps, stats.decode_rows);  // decode steps were shared
  }
}

TEST(Batching, ASessionAloneIsNeverPacked) {
  const auto engine = LoadTiny();
  ASSERT_TRUE(RunJob(*engine, {PromptTokens(300)}).status.ok());
  const StepSchedulerStats stats = engine->scheduler_stats();
  EXPECT_EQ(stats.packed_steps, 0u);
  EXPECT_EQ(stats.most_spans, 1u);
  EXPECT_EQ(stats.prefill_rows, 300u);
  EXPECT_EQ(stats.decode_rows, 39u);  // the last token is sampled, not computed
}

// Case R07: sessions that resume at once, their windows lost, share the steps of their replays.
TEST(Batching, Case_R07_ReplaysOfManySessionsShareSteps) {
  constexpr size_t kSessions = 8;
  EngineOptions options = TinyOptions(2, 512);
  options.window_budget_bytes = 0;
  const auto engine = LoadTiny(options);
  for (size_t i = 0; i < kSessions; ++i) {
    ASSERT_TRUE(OpenFor(*engine, {})->Prefill(PromptTokens(5 * kBlock, i)).ok());
  }
  const uint64_t before = engine->scheduler_stats().steps;

  // A long prefill holds the model while the others arrive.
  std::atomic<bool> is_busy = false;
  std::thread holder([&] {
    PrefillOptions prefill;
    prefill.progress = [&](int64_t, int64_t) { is_busy = true; };
    SessionOptions apart;
    apart.reuses_prefixes = false;
    EXPECT_TRUE((*engine->OpenSession(apart))->Prefill(PromptTokens(2000, 9), prefill).ok());
  });
  while (!is_busy) std::this_thread::yield();
  std::vector<std::thread> threads;
  std::atomic<int> hits = 0;
  for (size_t i = 0; i < kSessions; ++i) {
    threads.emplace_back([&, i] {
      const auto session = OpenFor(*engine, {});
      EXPECT_TRUE(session->Prefill(PromptTokens(5 * kBlock, i)).ok());
      const ReuseStats reuse = session->stats().reuse;
      EXPECT_EQ(reuse.hit_tokens, 4 * kBlock) << reuse.miss_reason;
      hits += reuse.hit_tokens > 0 ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  holder.join();
  EXPECT_EQ(hits, static_cast<int>(kSessions));
  const StepSchedulerStats stats = engine->scheduler_stats();
  EXPECT_GE(stats.most_spans, 2u);
  // Alone, each takes two steps (its replay, its suffix), and the holder four.
  EXPECT_LT(stats.steps - before, 2 * kSessions + 4);
}

TEST(Batching, ACancelledSessionLeavesItsNeighboursAlone) {
  const auto engine = LoadTiny();
  const Answer alone = RunJob(*engine, {PromptTokens(400)});
  std::atomic<bool> cancel = false;
  std::thread cancelled([&] {
    const auto session = Open(*engine);
    PrefillOptions prefill;
    prefill.cancel = &cancel;
    const Status status = session->Prefill(PromptTokens(2000, 3), prefill);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kCancelled);
      return;
    }
    GenerateOptions generate;
    generate.cancel = &cancel;
    generate.max_tokens = 100'000;
    generate.stops_at_eos = false;
    EXPECT_EQ((*session->Generate(generate)).finish_reason, FinishReason::kCancelled);
  });
  std::vector<Answer> answers(4);
  std::vector<std::thread> threads;
  for (Answer& answer : answers) {
    threads.emplace_back([&] { answer = RunJob(*engine, {PromptTokens(400)}); });
  }
  threads[0].join();
  cancel = true;
  cancelled.join();
  for (size_t i = 1; i < threads.size(); ++i) threads[i].join();
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.tokens, alone.tokens);
    ExpectSameBytes(answer.bytes, alone.bytes, "beside a cancelled session");
  }
  EXPECT_EQ(engine->cache_stats().pages.pinned_pages, 0u);
}

int64_t HitOf(const Engine& engine, const TenantName& tenant) {
  const auto session = OpenFor(engine, tenant);
  EXPECT_TRUE(session->Prefill(PromptTokens(3 * kBlock + 1)).ok());
  return session->stats().reuse.hit_tokens;
}

// Cases T01, T02: caches of tenants, and of one tenant's salts, never meet.
TEST(Tenants, Case_T01_OnlyTheSameTenantHits) {
  const auto engine = LoadTiny();
  EXPECT_EQ(HitOf(*engine, {"ann", ""}), 0);
  EXPECT_EQ(HitOf(*engine, {"ann", ""}), 3 * kBlock);
  EXPECT_EQ(engine->Forecast({"bob", ""}, PromptTokens(3 * kBlock + 1), ReplayMode::kBounded).num_found, 0u);
  EXPECT_EQ(HitOf(*engine, {"bob", ""}), 0);
  EXPECT_EQ(HitOf(*engine, {"", ""}), 0);
  EXPECT_EQ(HitOf(*engine, {"ann", "salt"}), 0);
  EXPECT_EQ(HitOf(*engine, {"bob", "salt"}), 0);
  EXPECT_EQ(HitOf(*engine, {"ann", "salt"}), 3 * kBlock);
  const PrefixForecast forecast = engine->Forecast({"bob", ""}, PromptTokens(3 * kBlock + 1), ReplayMode::kBounded);
  EXPECT_EQ(forecast.num_found, 3u);
}

class TenantStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  EngineOptions Options() const {
    EngineOptions options = TinyOptions();
    options.store_dir = directory_.string();
    options.store_budget_bytes = uint64_t{1} << 30;
    return options;
  }
  std::filesystem::path directory_ = std::filesystem::path(::testing::TempDir()) / "emberkv_tenant_store";
};

TEST_F(TenantStoreTest, TenantsFindTheirPagesAfterARestart) {
  {
    const auto engine = LoadTiny(Options());
    EXPECT_EQ(HitOf(*engine, {"ann", "s"}), 0);
    ASSERT_TRUE(engine->Flush(std::chrono::seconds(30)));
  }
  const auto engine = LoadTiny(Options());
  EXPECT_EQ(HitOf(*engine, {"ann", ""}), 0);
  EXPECT_EQ(HitOf(*engine, {"ann", "s"}), 3 * kBlock);
}

// Case T04: a tenant that was erased finds nothing, on any tier, now or after a restart.
TEST_F(TenantStoreTest, Case_T04_AnErasedTenantFindsNothingOnAnyTier) {
  {
    const auto engine = LoadTiny(Options());
    HitOf(*engine, {"ann", ""});
    HitOf(*engine, {"ann", "s"});
    HitOf(*engine, {"bob", ""});
    ASSERT_TRUE(engine->Flush(std::chrono::seconds(30)));
    const auto running = OpenFor(*engine, {"ann", ""});
    ASSERT_TRUE(running->Prefill(PromptTokens(2 * kBlock + 1)).ok());
    const size_t windows = engine->cache_stats().windows.checkpoints;

    const Result<uint64_t> erased = engine->EraseTenant("ann", std::chrono::seconds(30));
    ASSERT_TRUE(erased.ok()) << erased.status().ToString();
    EXPECT_EQ(*erased, 6u);
    EXPECT_LT(engine->cache_stats().windows.checkpoints, windows);
    EXPECT_EQ(engine->Forecast({"ann", ""}, PromptTokens(3 * kBlock + 1), ReplayMode::kBounded).num_found, 0u);
    GenerateOptions generate;
    generate.max_tokens = 3;
    EXPECT_TRUE(running->Generate(generate).ok());  // it keeps what it holds
    EXPECT_EQ(HitOf(*engine, {"bob", ""}), 3 * kBlock);
    ASSERT_TRUE(engine->EraseTenant("ann", std::chrono::seconds(30)).ok());
  }
  const auto engine = LoadTiny(Options());
  EXPECT_EQ(HitOf(*engine, {"bob", ""}), 3 * kBlock);
  EXPECT_EQ(HitOf(*engine, {"ann", "s"}), 0);
  EXPECT_EQ(HitOf(*engine, {"ann", ""}), 0);
}

TEST_F(TenantStoreTest, AForecastTellsTheTierAndTheReason) {
  {
    const auto engine = LoadTiny(Options());
    HitOf(*engine, {"ann", ""});
    ASSERT_TRUE(engine->Flush(std::chrono::seconds(30)));
    const std::vector<int32_t> prompt = PromptTokens(5 * kBlock);
    const PrefixForecast resident = engine->Forecast({"ann", ""}, prompt, ReplayMode::kBounded);
    EXPECT_EQ(resident.num_found, 3u);
    EXPECT_EQ(resident.tiers[0], CacheTier::kResident);
    EXPECT_FALSE(resident.tiers[3].has_value());
    EXPECT_EQ(resident.miss_reason, "never seen");
  }
  const auto engine = LoadTiny(Options());
  EXPECT_EQ(engine->Forecast({"ann", ""}, PromptTokens(5 * kBlock), ReplayMode::kBounded).tiers[0],
            CacheTier::kStore);
  EXPECT_EQ(engine->Forecast({"ann", ""}, PromptTokens(kBlock), ReplayMode::kBounded).miss_reason, "too short");
}

TEST(Logprobs, EverySampledTokenIsDescribed) {
  const auto session = Open(SharedTiny());
  ASSERT_TRUE(session->Prefill(PromptTokens(100)).ok());
  std::vector<SampledToken> described;
  GenerateOptions options;
  options.max_tokens = 5;
  options.stops_at_eos = false;
  options.top_logprobs = 3;
  options.on_token = [&](const SampledToken& token) { described.push_back(token); };
  const Result<Generation> generation = session->Generate(options);
  ASSERT_TRUE(generation.ok());
  ASSERT_EQ(described.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(described[i].token, generation->tokens[i]);
    EXPECT_EQ(described[i].token, described[i].alternatives[0].token);  // greedy
    EXPECT_EQ(*described[i].logprob, described[i].alternatives[0].logprob);
  }
}

}  // namespace
}  // namespace emberkv
