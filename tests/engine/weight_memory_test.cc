// An engine whose routed experts do not fit in the memory for weights.
#include <gmock/gmock.h>

#include "ember_tiny.h"

namespace emberkv {
namespace {

// Weights that every token needs, and `experts` bytes.
EngineOptions WithExpertMemory(uint64_t experts, int threads = 2, int chunk = 512) {
  EngineOptions options = TinyOptions(threads, chunk);
  const Engine& packed = SharedTiny();
  options.weight_memory_bytes = packed.weight_bytes() - packed.expert_stats().total_bytes + experts;
  return options;
}

SessionBytes Answered(const Engine& engine) {
  const auto session = Open(engine);
  EXPECT_TRUE(PrefillAs(*session, PromptTokens(300), ReplayMode::kBounded).ok());
  GenerateOptions options;
  options.max_tokens = 20;
  options.stops_at_eos = false;
  EXPECT_TRUE(session->Generate(options).ok());
  EXPECT_TRUE(PrefillAs(*session, PromptTokens(1), ReplayMode::kFull).ok());
  return BytesOf(*session);
}

TEST(WeightMemory, StreamedExpertsChangeNoBit) {
  const SessionBytes want = Answered(SharedTiny());
  const uint64_t total = SharedTiny().expert_stats().total_bytes;
  for (const uint64_t experts : {uint64_t{0}, total / 4, total - 1}) {
    for (const int threads : {1, 2}) {
      const auto engine = LoadTiny(WithExpertMemory(experts, threads, 128));
      ASSERT_NE(engine, nullptr);
      ExpectSameBytes(want, Answered(*engine), std::to_string(experts) + " bytes of experts");
      const ExpertStats stats = engine->expert_stats();
      EXPECT_TRUE(stats.is_streamed);
      EXPECT_GT(stats.reads, 0u);
    }
  }
}

TEST(WeightMemory, ThePlanHoldsWhatWasAllowed) {
  const ExpertStats packed = SharedTiny().expert_stats();
  EXPECT_FALSE(packed.is_streamed);
  EXPECT_EQ(SharedTiny().memory_plan().expert_bytes, packed.total_bytes);
  EXPECT_EQ(SharedTiny().memory_plan().weight_bytes, SharedTiny().weight_bytes());
  const EngineOptions options = WithExpertMemory(packed.total_bytes / 2);
  const auto engine = LoadTiny(options);
  ASSERT_NE(engine, nullptr);
  const MemoryPlan plan = engine->memory_plan();
  EXPECT_LE(plan.weight_bytes, *options.weight_memory_bytes);
  EXPECT_GT(plan.weight_bytes, *options.weight_memory_bytes - packed.total_bytes / 8);
  EXPECT_LE(plan.expert_bytes, packed.total_bytes / 2);
  Answered(*engine);
  EXPECT_LE(engine->weight_bytes(), plan.weight_bytes);
}

TEST(WeightMemory, TooLittleForWhatEveryTokenNeedsIsRefused) {
  EngineOptions options = WithExpertMemory(0);
  --*options.weight_memory_bytes;
  const auto engine = Engine::Load(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(engine.status().message(), ::testing::HasSubstr("weight_memory_bytes is "));
}

}  // namespace
}  // namespace emberkv
