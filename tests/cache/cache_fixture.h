// What the tests of cache and store together share: small pages with contents that follow from
// their hash, sequences of tokens, and a store whose reads and writes the test holds up.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fake_clock.h"
#include "cache/page_cache.h"
#include "store/memory_store.h"

namespace emberkv {

inline constexpr int kBlock = 4;  // tokens
inline constexpr size_t kPageBytes = 256;
inline constexpr std::chrono::milliseconds kForever{600'000};

// The bytes that the page of a block has, whoever computes it.
inline void Compute(const BlockHash& hash, uint8_t* page) {
  for (size_t i = 0; i < kPageBytes; ++i) {
    page[i] = static_cast<uint8_t>(hash.bytes[i % 32] + i / 32);
  }
}

inline bool IsPageOf(const BlockHash& hash, const uint8_t* page) {
  std::vector<uint8_t> expected(kPageBytes);
  Compute(hash, expected.data());
  return std::equal(expected.begin(), expected.end(), page);
}

// A sequence of tokens that owns them, as a chain of blocks.
class Prompt {
 public:
  // `first` repeated; two prompts with equal arguments are equal.
  Prompt(int32_t first, size_t num_blocks) : tokens_(num_blocks * kBlock, first) { Chain(); }
  // The first blocks of `other`, then blocks of `next`.
  Prompt(const Prompt& other, size_t num_shared, int32_t next, size_t num_blocks)
      : tokens_(other.tokens_.begin(),
                other.tokens_.begin() + static_cast<int64_t>(num_shared) * kBlock) {
    tokens_.resize(tokens_.size() + num_blocks * kBlock, next);
    Chain();
  }
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  std::span<const BlockIdentity> chain() const { return chain_; }
  const BlockIdentity& block(size_t i) const { return chain_[i]; }

 private:
  void Chain() { chain_ = ChainBlocks(Sha256("root"), {}, tokens_, kBlock); }

  std::vector<int32_t> tokens_;
  std::vector<BlockIdentity> chain_;
};

inline bool HoldsPagesOf(const PrefixHit& hit, const Prompt& prompt) {
  for (size_t i = 0; i < hit.num_blocks(); ++i) {
    if (!IsPageOf(prompt.block(i).hash, hit.pages[i].bytes())) return false;
  }
  return true;
}

// A MemoryStore that counts, and stops where the test wants it to. It never sleeps.
class GatedStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  ~GatedStore() override { OpenAll(); }

  std::vector<PutOutcome> Put(std::span<const PageRecord> pages) override {
    Pass(&puts_);
    return MemoryStore::Put(pages);
  }

  std::unique_ptr<PendingGet> Get(std::vector<GetRequest> requests,
                                  std::chrono::milliseconds timeout) override {
    bool is_overdue = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      pages_asked_ += requests.size();
      is_overdue = reads_are_overdue_;
    }
    if (is_overdue) return std::make_unique<OverdueGet>(this, std::move(requests));
    Pass(&gets_);
    return MemoryStore::Get(std::move(requests), timeout);
  }

  std::vector<bool> Contains(std::span<const BlockHash> keys) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++probes_;
    }
    return MemoryStore::Contains(keys);
  }

  void ClosePuts() { Close(&puts_); }
  void CloseGets() { Close(&gets_); }
  void OpenPuts() { Open(&puts_); }
  void OpenGets() { Open(&gets_); }
  void AwaitPut() { Await(&puts_); }  // until one stands at the gate
  void AwaitGet() { Await(&gets_); }

  // Reads give kTimeout and then write to their pages until LetOverdueReadsEnd.
  void MakeReadsOverdue() {
    const std::lock_guard<std::mutex> lock(mutex_);
    reads_are_overdue_ = true;
    overdue_.is_closed = true;
  }
  void LetOverdueReadsEnd() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      reads_are_overdue_ = false;
    }
    Open(&overdue_);
  }

  uint64_t pages_asked() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pages_asked_;
  }
  uint64_t probes() {  // calls of Contains
    const std::lock_guard<std::mutex> lock(mutex_);
    return probes_;
  }

 private:
  struct Gate {
    bool is_closed = false;
    int num_waiting = 0;
  };

  class OverdueGet : public PendingGet {
   public:
    OverdueGet(GatedStore* store, std::vector<GetRequest> requests)
        : store_(store), requests_(std::move(requests)) {}
    ~OverdueGet() override {
      store_->Pass(&store_->overdue_);
      for (GetRequest& request : requests_) std::ranges::fill(request.payload, uint8_t{0xdd});
    }
    std::vector<GetOutcome> Wait() override {
      return std::vector<GetOutcome>(requests_.size(), GetOutcome::kTimeout);
    }

   private:
    GatedStore* store_;
    std::vector<GetRequest> requests_;
  };

  void Pass(Gate* gate) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++gate->num_waiting;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !gate->is_closed; });
    --gate->num_waiting;
  }
  void Await(Gate* gate) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return gate->num_waiting > 0; });
  }
  void Close(Gate* gate) {
    const std::lock_guard<std::mutex> lock(mutex_);
    gate->is_closed = true;
  }
  void Open(Gate* gate) {
    const std::lock_guard<std::mutex> lock(mutex_);
    gate->is_closed = false;
    changed_.notify_all();
  }
  void OpenAll() {
    for (Gate* gate : {&puts_, &gets_, &overdue_}) Open(gate);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Gate puts_;  // guarded by mutex_, as is all below
  Gate gets_;
  Gate overdue_;
  bool reads_are_overdue_ = false;
  uint64_t pages_asked_ = 0;
  uint64_t probes_ = 0;
};

// Computes and seals blocks [begin, end) of the prompt and returns their pages, pinned. Fewer when
// the pool is out of pages.
inline std::vector<PageHandle> SealBlocks(PageCache* cache, const Prompt& prompt, size_t begin,
                                          size_t end, const SealOptions& options = {}) {
  std::vector<PageHandle> pages;
  for (size_t i = begin; i < end; ++i) {
    Result<PageHandle> page = cache->pool()->Acquire();
    if (!page.ok()) break;
    Compute(prompt.block(i).hash, page->bytes());
    pages.push_back(cache->Seal(std::move(page).value(), prompt.block(i), options));
  }
  return pages;
}

inline std::unique_ptr<PagePool> MakePool(size_t num_pages) {
  return std::move(PagePool::Make(kPageBytes, num_pages * kPageBytes)).value();
}

}  // namespace emberkv
