// Random requests against cache and store, and against a model that is a set of hashes.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

#include "cache_fixture.h"
#include "store/fault_injection_store.h"

namespace emberkv {
namespace {

constexpr size_t kPoolPages = 24;
constexpr int kSteps = 1500;

class PageCacheModelTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  struct Session {
    std::unique_ptr<Prompt> prompt;
    std::vector<PageHandle> pages;
  };

  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  std::unique_ptr<Prompt> RandomPrompt() {
    const Prompt stem(static_cast<int32_t>(Random(3)), 5);
    return std::make_unique<Prompt>(stem, Random(6), static_cast<int32_t>(10 + Random(3)),
                                    Random(5));
  }

  bool CanTakePage() { return cache_->pool()->Acquire().ok(); }

  // Leading blocks that the model knows to have been sealed.
  size_t NumKnown(const Prompt& prompt) const {
    size_t known = 0;
    while (known < prompt.chain().size() && known_.contains(prompt.block(known).hash)) ++known;
    return known;
  }

  // Looks up a prompt, checks what comes, and seals the rest as far as pages go.
  void OpenSession(bool no_store) {
    Session session{RandomPrompt(), {}};
    const Prompt& prompt = *session.prompt;
    PrefixHit hit = cache_->Lookup(prompt.chain(), {.timeout = kForever, .no_store = no_store});
    ASSERT_TRUE(HoldsPagesOf(hit, prompt));
    ASSERT_EQ(hit.tiers.size(), hit.num_blocks());
    const size_t known = NumKnown(prompt);
    ASSERT_LE(hit.num_blocks(), known);
    if (is_sound_ && hit.num_blocks() < known) {
      ASSERT_EQ(hit.miss_reason, MissReason::kNoPage);
      ASSERT_FALSE(CanTakePage());
    }
    ASSERT_EQ(hit.miss_reason == MissReason::kNone,
              hit.num_blocks() == prompt.chain().size() && !prompt.chain().empty());
    session.pages = std::move(hit.pages);
    const size_t had = session.pages.size();
    auto sealed = SealBlocks(&*cache_, prompt, had, prompt.chain().size(), {.no_store = no_store});
    for (size_t i = 0; i < sealed.size(); ++i) {
      ASSERT_TRUE(IsPageOf(prompt.block(had + i).hash, sealed[i].bytes()));
      if (!no_store) known_.insert(prompt.block(had + i).hash);
      session.pages.push_back(std::move(sealed[i]));
    }
    sessions_.push_back(std::move(session));
  }

  void CloseSession() {
    if (sessions_.empty()) return;
    sessions_.erase(sessions_.begin() + Random(static_cast<uint32_t>(sessions_.size())));
  }

  // What sessions hold is theirs, whatever was evicted meanwhile.
  void CheckSessions() {
    std::set<const uint8_t*> pinned;
    for (const Session& session : sessions_) {
      for (size_t i = 0; i < session.pages.size(); ++i) {
        ASSERT_TRUE(IsPageOf(session.prompt->block(i).hash, session.pages[i].bytes()));
        pinned.insert(session.pages[i].bytes());
      }
    }
    const PageCacheStats stats = cache_->stats();
    ASSERT_LE(stats.pinned_pages, pinned.size());
    ASSERT_LE(stats.resident_pages, stats.pool.pages_in_use);
    ASSERT_EQ(stats.pool.pages_in_use - stats.resident_pages, pinned.size() - stats.pinned_pages)
        << "each page is resident, or some session's own";
    ASSERT_EQ(stats.unequal_seals, 0u);
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      if (sessions_.size() > 3 || Random(3) == 0) {
        CloseSession();
      } else {
        ASSERT_NO_FATAL_FAILURE(OpenSession(Random(8) == 0)) << "step " << step;
      }
      if (!is_sound_ && Random(10) == 0) clock_.Advance(int64_t{3'600'000'000} * Random(80));
      ASSERT_TRUE(cache_->Flush(kForever));
      ASSERT_NO_FATAL_FAILURE(CheckSessions()) << "step " << step;
    }
    sessions_.clear();
    const PageCacheStats stats = cache_->stats();
    EXPECT_EQ(stats.pinned_pages, 0u);
    EXPECT_EQ(stats.pool.pages_in_use, stats.resident_pages);
    EXPECT_GT(stats.evictions, 0u);
    EXPECT_GT(stats.store_hits, 0u);
  }

  std::mt19937 random_{GetParam()};
  FakeClock clock_;
  std::optional<FaultInjectionStore> store_;
  std::optional<PageCache> cache_;
  bool is_sound_ = true;  // the store keeps and gives everything
  std::set<BlockHash> known_;
  std::vector<Session> sessions_;
};

TEST_P(PageCacheModelTest, FindsAllThatWasSealedAndNothingElse) {
  store_.emplace(
      std::make_unique<MemoryStore>(MemoryStoreOptions{.budget_bytes = 1 << 24}, &clock_),
      GetParam());
  cache_.emplace(MakePool(kPoolPages), &*store_, PageCacheOptions{.batch_pages = 1 + Random(4)});
  Run();
}

TEST_P(PageCacheModelTest, ABrokenStoreMakesHitsShorterAndNeverWrong) {
  is_sound_ = false;
  const uint64_t room = 30 * MemoryStore::StoredBytes(kBlock, kPageBytes);
  store_.emplace(std::make_unique<MemoryStore>(MemoryStoreOptions{.budget_bytes = room}, &clock_),
                 GetParam());
  for (const Fault fault :
       {Fault::kFailPut, Fault::kRefusePut, Fault::kLosePut, Fault::kFailGet, Fault::kCorruptGet}) {
    store_->StrikeAtRandom(fault, 0.05);
  }
  cache_.emplace(MakePool(kPoolPages), &*store_, PageCacheOptions{.batch_pages = 1 + Random(4)});
  Run();
  EXPECT_EQ(store_->Stats().evicted_before_deadline, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PageCacheModelTest, ::testing::Range(1u, 9u));

}  // namespace
}  // namespace emberkv
