// What a session takes from the caches and what it then computes: exact resumes have the bits of a cold
// run, bounded ones the published approximation, and neither disturbs the other's pages.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <tuple>

#include "ember_tiny.h"
#include "golden/golden_data.h"

namespace emberkv {
namespace {

constexpr int64_t kBlock = kDefaultBlockSize;

struct Source {
  std::string name;
  std::string dir;
  std::vector<int32_t> tokens;  // at least 640
};

std::vector<Source> SmallModels() {
  std::vector<Source> models = {{"ember-tiny", kEmberTiny, PromptTokens(1000)}};
  for (const std::string name : {"tiny-random", "tiny-wide"}) {
    models.push_back({name, std::string(EMBERKV_TEST_DATA) + "/golden/" + name, golden::Tiny(name).tokens});
  }
  return models;
}

EngineOptions OptionsFor(const Source& model, bool windows_live, int chunk = 512) {
  EngineOptions options;
  options.model_dir = model.dir;
  options.num_threads = 2;
  options.prefill_chunk = chunk;
  options.kv_budget_bytes = size_t{64} << 20;
  options.window_budget_bytes = windows_live ? size_t{64} << 20 : 0;
  return options;
}

std::vector<int32_t> First(const Source& model, int64_t n) {
  return {model.tokens.begin(), model.tokens.begin() + n};
}

struct Outcome {
  std::vector<float> logits;
  std::vector<uint8_t> windows;
  ReuseStats reuse;
};

Outcome RunSession(const Engine& engine, const std::vector<int32_t>& tokens, ReplayMode mode,
                   bool reuses = true) {
  SessionOptions options;
  options.reuses_prefixes = reuses;
  const auto session = engine.OpenSession(options);
  EXPECT_TRUE(session.ok());
  const Status status = PrefillAs(**session, tokens, mode);
  EXPECT_TRUE(status.ok()) << status.ToString();
  const auto logits = (*session)->logits();
  const auto windows = (*session)->windows();
  return {{logits.begin(), logits.end()}, {windows.begin(), windows.end()}, (*session)->stats().reuse};
}

void ExpectSame(const Outcome& got, const Outcome& want, const std::string& what) {
  EXPECT_EQ(got.logits, want.logits) << what;
  EXPECT_EQ(got.windows, want.windows) << what;
}

// Case W09: resumes around every boundary, with live and with lost windows, in other chunks.
TEST(Reuse, ExactResumesHaveTheBitsOfAColdRun) {
  for (const Source& model : SmallModels()) {
    for (const bool windows_live : {true, false}) {
      const auto engine = LoadTiny(OptionsFor(model, windows_live, windows_live ? 512 : 100));
      ASSERT_NE(engine, nullptr);
      RunSession(*engine, First(model, 300), ReplayMode::kExact);  // two blocks
      for (const int64_t length : {127, 128, 129, 255, 256, 257, 300, 383, 384, 385, 450}) {
        const std::vector<int32_t> tokens = First(model, length);
        const Outcome cold = RunSession(*engine, tokens, ReplayMode::kExact, false);
        const std::string what = model.name + (windows_live ? " live " : " lost ") + std::to_string(length);
        const Outcome warm = RunSession(*engine, tokens, ReplayMode::kExact);
        ExpectSame(warm, cold, what);
        EXPECT_GE(warm.reuse.hit_tokens, std::min<int64_t>(2 * kBlock, (length - 1) / kBlock * kBlock)) << what;
        EXPECT_EQ(warm.reuse.hit_tokens % kBlock, 0);
        EXPECT_LT(warm.reuse.hit_tokens, length);  // Case B01: the last token is always computed
        EXPECT_EQ(warm.reuse.replayed_at, 0u);
      }
    }
  }
}

TEST(Reuse, ExactResumesHoldAtRandomBoundaries) {
  std::mt19937 rng(20261129);
  for (const Source& model : SmallModels()) {
    for (int round = 0; round < 6; ++round) {
      const bool windows_live = rng() % 2 == 0;
      const int chunk = 1 + static_cast<int>(rng() % 300);
      const auto engine = LoadTiny(OptionsFor(model, windows_live, chunk));
      const int64_t held = 1 + static_cast<int64_t>(rng() % 600), length = 1 + static_cast<int64_t>(rng() % 640);
      RunSession(*engine, First(model, held), rng() % 2 == 0 ? ReplayMode::kExact : ReplayMode::kBounded);
      const std::string what = model.name + " held " + std::to_string(held) + " length " +
                               std::to_string(length) + " chunk " + std::to_string(chunk);
      ExpectSame(RunSession(*engine, First(model, length), ReplayMode::kExact),
                 RunSession(*engine, First(model, length), ReplayMode::kExact, false), what);
    }
  }
}

// Cases I01, I02: pages of one model are never another's, whatever its name or path.
TEST(Reuse, NewWeightsUnderTheSamePathMiss) {
  const std::filesystem::path root =
      std::filesystem::path(::testing::TempDir()) / "emberkv_reuse_identity_test";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::filesystem::copy(kEmberTiny, root / "model", std::filesystem::copy_options::recursive);
  Source model = SmallModels()[0];
  model.dir = (root / "model").string();
  EngineOptions options = OptionsFor(model, true);
  options.store_dir = (root / "store").string();
  options.store_budget_bytes = uint64_t{64} << 20;
  const auto hit = [&] {
    const auto engine = LoadTiny(options);
    const Outcome outcome = RunSession(*engine, First(model, 600), ReplayMode::kBounded);
    EXPECT_TRUE(engine->Flush(std::chrono::seconds(30)));
    return outcome.reuse.hit_tokens;
  };
  EXPECT_EQ(hit(), 0);
  EXPECT_EQ(hit(), 4 * kBlock);  // Case I07: the canary: what is written is found
  std::fstream weights(root / "model" / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekg(-1, std::ios::end);
  const char last = static_cast<char>(weights.get());
  weights.seekp(-1, std::ios::end);
  weights.put(static_cast<char>(last ^ 1));  // the sign or last bit of one weight
  weights.close();
  EXPECT_EQ(hit(), 0);
  std::ofstream(root / "model" / "config.json", std::ios::app) << "\n";
  EXPECT_EQ(hit(), 0);
  std::filesystem::remove_all(root);
}

// Case B02: a prompt that diverges one token before a block's end hits the block before.
TEST(Reuse, DivergenceCostsItsBlockOnly) {
  const Source model = SmallModels()[0];
  const auto engine = LoadTiny(OptionsFor(model, true));
  RunSession(*engine, First(model, 600), ReplayMode::kBounded);
  std::vector<int32_t> other = First(model, 600);
  other[3 * kBlock - 1] ^= 1;
  const Outcome outcome = RunSession(*engine, other, ReplayMode::kExact);
  EXPECT_EQ(outcome.reuse.hit_tokens, 2 * kBlock);
  ExpectSame(outcome, RunSession(*engine, other, ReplayMode::kExact, false), "diverged");
}

TEST(Reuse, LostWindowsGiveThePublishedApproximation) {
  const Source model = SmallModels()[1];
  const golden::File golden(model.name + "/replay_golden.safetensors");
  for (const auto& [held, hit, length] :
       {std::tuple<int64_t, int64_t, int64_t>{200, 128, 129}, {200, 128, 300}, {300, 256, 270}, {300, 256, 513}}) {
    const auto engine = LoadTiny(OptionsFor(model, false));
    RunSession(*engine, First(model, held), ReplayMode::kBounded);
    const Outcome outcome = RunSession(*engine, First(model, length), ReplayMode::kBounded);
    const std::string name = "enc_bounded.H" + std::to_string(hit) + ".P" + std::to_string(length);
    EXPECT_EQ(outcome.reuse.hit_tokens, hit);
    EXPECT_EQ(outcome.reuse.replayed_tokens, 32);
    EXPECT_LE(golden::Compare(outcome.logits, golden.Floats(name + ".logits")).rms, 0.35) << name;
    // It is not the cold run: a missing truncation would show, most of all right behind the hit.
    const Outcome cold = RunSession(*engine, First(model, length), ReplayMode::kBounded, false);
    EXPECT_GT(golden::Compare(outcome.logits, cold.logits).rms, length - hit < 32 ? 0.5 : 0.1) << name;
  }
}

// Architecture 3: pages after a bounded replay are found through their own chain and shadow nothing.
TEST(Reuse, ReplayedPagesHaveTheirOwnChain) {
  const Source model = SmallModels()[1];
  const auto engine = LoadTiny(OptionsFor(model, false));
  RunSession(*engine, First(model, 200), ReplayMode::kBounded);
  const Outcome first = RunSession(*engine, First(model, 600), ReplayMode::kBounded);
  EXPECT_EQ(first.reuse.hit_tokens, kBlock);
  EXPECT_EQ(first.reuse.replayed_at, static_cast<uint64_t>(kBlock));
  const Outcome second = RunSession(*engine, First(model, 600), ReplayMode::kBounded);
  EXPECT_EQ(second.reuse.hit_tokens, 4 * kBlock);
  EXPECT_EQ(second.reuse.replayed_at, static_cast<uint64_t>(4 * kBlock));
  // `exact` takes canonical pages only and then leaves canonical ones, which bounded prefers.
  const Outcome exact = RunSession(*engine, First(model, 600), ReplayMode::kExact);
  EXPECT_EQ(exact.reuse.hit_tokens, kBlock);
  ExpectSame(exact, RunSession(*engine, First(model, 600), ReplayMode::kExact, false), "exact");
  EXPECT_EQ(RunSession(*engine, First(model, 600), ReplayMode::kExact).reuse.hit_tokens, 4 * kBlock);
  EXPECT_EQ(engine->cache_stats().pages.unequal_seals, 0u);
}

TEST(Reuse, LiveWindowsSpareTheReplayAndKeepPagesCanonical) {
  const Source model = SmallModels()[1];
  const auto engine = LoadTiny(OptionsFor(model, true));
  RunSession(*engine, First(model, 256), ReplayMode::kBounded);
  const Outcome outcome = RunSession(*engine, First(model, 640), ReplayMode::kBounded);
  EXPECT_EQ(outcome.reuse.hit_tokens, 256);
  EXPECT_EQ(outcome.reuse.replayed_tokens, 0);
  EXPECT_TRUE(outcome.reuse.from_checkpoint);
  // Nothing was approximated but the decoder's start, as in a cold bounded run.
  ExpectSame(outcome, RunSession(*engine, First(model, 640), ReplayMode::kBounded, false), "bounded");
}

TEST(Reuse, FullModeTakesNothingAndNoStoreLeavesNothing) {
  const Source model = SmallModels()[0];
  const auto engine = LoadTiny(OptionsFor(model, true));
  SessionOptions options;
  options.no_store = true;
  auto session = engine->OpenSession(options);
  ASSERT_TRUE(PrefillAs(**session, First(model, 600), ReplayMode::kBounded).ok());
  EXPECT_EQ(engine->cache_stats().pages.resident_pages, 0u);  // Case T03
  EXPECT_EQ(engine->cache_stats().windows.checkpoints, 0u);
  RunSession(*engine, First(model, 600), ReplayMode::kBounded);
  EXPECT_EQ(engine->cache_stats().pages.resident_pages, 4u);
  EXPECT_EQ(RunSession(*engine, First(model, 600), ReplayMode::kFull).reuse.hit_tokens, 0);
}

TEST(Reuse, CancellingAReplayLeavesAnEmptySession) {
  const Source model = SmallModels()[0];
  const auto engine = LoadTiny(OptionsFor(model, false, 16));
  RunSession(*engine, First(model, 600), ReplayMode::kBounded);
  const auto session = engine->OpenSession();
  std::atomic<bool> cancel{false};
  PrefillOptions options;
  options.cancel = &cancel;
  options.progress = [&](int64_t, int64_t) { cancel = true; };
  EXPECT_EQ((*session)->Prefill(First(model, 600), options).code(), StatusCode::kCancelled);
  EXPECT_TRUE((*session)->tokens().empty());
  EXPECT_EQ((*session)->stats().pages, 0);
  // And it is usable: another prompt, computed as if nothing had been.
  ASSERT_TRUE(PrefillAs(**session, First(model, 90), ReplayMode::kExact).ok());
  const auto logits = (*session)->logits();
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()),
            RunSession(*engine, First(model, 90), ReplayMode::kExact, false).logits);
}

// Case R04: cancelled anywhere, in replay, prefill or decode, a session leaves no pin and no claim behind.
TEST(Reuse, CancellingAnywhereLeaksNothing) {
  const Source model = SmallModels()[0];
  const auto engine = LoadTiny(OptionsFor(model, false, 16));
  RunSession(*engine, First(model, 600), ReplayMode::kBounded);
  const size_t resident = engine->cache_stats().pages.resident_pages;
  for (int steps = 0; steps < 14; ++steps) {
    const auto session = engine->OpenSession();
    std::atomic<bool> cancel{steps == 0};
    int done = 0;
    PrefillOptions options;
    options.cancel = &cancel;
    options.progress = [&](int64_t, int64_t) { cancel = ++done == steps; };
    const Status status = (*session)->Prefill(First(model, 700), options);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled) << status.ToString();
    if (!status.ok()) continue;
    GenerateOptions generate;
    generate.cancel = &cancel;
    cancel = true;
    EXPECT_EQ((*session)->Generate(generate)->finish_reason, FinishReason::kCancelled);
  }
  const PageCacheStats after = engine->cache_stats().pages;
  EXPECT_EQ(after.pinned_pages, 0u);
  EXPECT_EQ(after.pool.pages_in_use, after.resident_pages);
  EXPECT_GE(after.resident_pages, resident);
  // No claim is left: the next request computes at once instead of waiting for one that is gone.
  EXPECT_EQ(RunSession(*engine, First(model, 900), ReplayMode::kBounded).logits.size(),
            static_cast<size_t>(engine->config().vocab_size));
}

// Case W02, R01: what a process stored, the next one reads, and answers with the same bits.
TEST(Reuse, ARestartedEngineResumesFromTheStore) {
  for (const Source& model : SmallModels()) {
    const std::filesystem::path dir =
        std::filesystem::path(::testing::TempDir()) / ("emberkv_reuse_test_" + model.name);
    std::filesystem::remove_all(dir);
    EngineOptions options = OptionsFor(model, true);
    options.store_dir = dir.string();
    options.store_budget_bytes = uint64_t{64} << 20;
    const std::vector<int32_t> tokens = First(model, 600);
    Outcome cold;
    {
      const auto engine = LoadTiny(options);
      ASSERT_NE(engine, nullptr);
      cold = RunSession(*engine, tokens, ReplayMode::kExact);
      EXPECT_EQ(cold.reuse.miss_reason, "never seen");
      ASSERT_TRUE(engine->Flush(std::chrono::seconds(30)));
    }
    const auto engine = LoadTiny(options);
    ASSERT_NE(engine, nullptr);
    const Outcome warm = RunSession(*engine, tokens, ReplayMode::kExact);
    EXPECT_EQ(warm.reuse.hit_tokens, 4 * kBlock);
    EXPECT_EQ(warm.reuse.store_blocks, 4);
    EXPECT_EQ(warm.reuse.bytes_read, 4 * engine->layout().page_bytes);
    ExpectSame(warm, cold, model.name);
    EXPECT_EQ(engine->cache_stats().store->evicted_before_deadline, 0u);
    std::filesystem::remove_all(dir);
  }
}

// Case R05: concurrent requests for one cold prefix compute it once.
TEST(Reuse, ATenantStoresNoMoreThanItMay) {
  const auto dir = std::filesystem::path(::testing::TempDir()) / "emberkv_reuse_limits";
  std::filesystem::remove_all(dir);
  const Source model = SmallModels().front();
  EngineOptions options = OptionsFor(model, true);
  options.store_dir = dir.string();
  options.store_budget_bytes = uint64_t{256} << 20;
  SessionOptions acme;
  acme.tenant.name = "acme";
  const auto run = [&](const Engine& engine, const SessionOptions& session_options) {
    const auto session = engine.OpenSession(session_options);
    EXPECT_TRUE(session.ok());
    EXPECT_TRUE(PrefillAs(**session, First(model, 900), ReplayMode::kBounded).ok());
    EXPECT_TRUE(engine.Flush(std::chrono::seconds(60)));
    return (*session)->stats().reuse;
  };
  {
    const auto engine = LoadTiny(options);
    ASSERT_NE(engine, nullptr);
    run(*engine, {});  // the local user, who has no limit
    const TenantSum local = engine->StoredBy("");
    ASSERT_EQ(local.pages, 7u);
    acme.limits = {.max_bytes = 3 * local.bytes / local.pages, .retention = std::chrono::hours(1)};
    run(*engine, acme);
    EXPECT_EQ(engine->StoredBy("acme").pages, 3u);
    EXPECT_EQ(engine->StoredBy("acme").promised_bytes, acme.limits.max_bytes);
    EXPECT_EQ(engine->cache_stats().store->puts_refused_tenant_full, 4u);
    EXPECT_EQ(engine->StoredBy("nobody").pages, 0u);
  }
  const auto engine = LoadTiny(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->StoredBy("acme").pages, 3u);
  const ReuseStats reuse = run(*engine, acme);
  EXPECT_EQ(reuse.store_blocks, 3);
  EXPECT_EQ(engine->StoredBy("acme").pages, 3u);
  std::filesystem::remove_all(dir);
}

TEST(Reuse, ManyRequestsForOneColdPrefixComputeItOnce) {
  const Source model = SmallModels()[0];
  const auto engine = LoadTiny(OptionsFor(model, true));
  std::vector<Outcome> outcomes(8);
  std::vector<std::thread> threads;
  for (Outcome& outcome : outcomes) {
    threads.emplace_back([&] { outcome = RunSession(*engine, First(model, 900), ReplayMode::kExact); });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t cold = 0;
  for (const Outcome& outcome : outcomes) {
    cold += outcome.reuse.hit_tokens == 0 ? 1 : 0;
    EXPECT_EQ(outcome.logits, outcomes[0].logits);
  }
  EXPECT_EQ(cold, 1);
  EXPECT_EQ(engine->cache_stats().pages.seals, 7u);
}

}  // namespace
}  // namespace emberkv
