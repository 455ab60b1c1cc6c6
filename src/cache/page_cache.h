// The cache of global KV that requests talk to: complete pages by block hash, in memory and,
// through a KvStore, on a durable tier. Pages move from pool to store and back as the same bytes.
//
// Any thread may call anything. The cache owns its pool and its threads; the store is not owned and
// outlives it, and every page handle and claim is gone before it ends. Handles pin: what a request
// looked up, or holds in its block table, is never evicted. A missing, slow or full store makes
// hits shorter and nothing else.
//
// A request looks up its blocks, claims those that are missing, computes them in order and seals
// each; see ClaimOutcome for what it does when another request is computing them already.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_identity.h"
#include "cache/compute_claims.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/store_reader.h"
#include "cache/write_behind.h"
#include "store/kv_store.h"

namespace emberkv {

enum class CacheTier { kResident, kStore };
const char* CacheTierName(CacheTier tier);

// Why the first block that a lookup did not find was not there.
enum class MissReason {
  kNone,         // all blocks were found
  kTooShort,     // the prompt has no full block to look up
  kNotResident,  // not in memory, and there is no store
  kNeverSeen,    // this and the next six as the store's GetOutcome of the same name
  kExpired,
  kRefused,
  kCorrupt,
  kQuarantined,
  kTimeout,
  kFailed,
  kStoreHung,  // an earlier read is overdue and still under way: the store was not asked
  kNoPage,     // stored, but every page of the pool is pinned
};
inline constexpr size_t kNumMissReasons = static_cast<size_t>(MissReason::kNoPage) + 1;
const char* MissReasonName(MissReason reason);

// The longest prefix that was there. The request's until it lets go of the pages.
struct PrefixHit {
  std::vector<PageHandle> pages;  // of the first blocks, in order; read-only
  std::vector<CacheTier> tiers;   // where each was found
  MissReason miss_reason = MissReason::kNone;
  size_t bytes_read = 0;  // from the store, by this lookup
  double seconds = 0;
  double store_seconds = 0;  // of these: waiting for the store

  size_t num_blocks() const { return pages.size(); }
};

struct LookupOptions {
  Digest tenant = {};  // whose blocks these are
  std::chrono::milliseconds timeout{2000};  // for everything that has to be waited for
  // The request leaves nothing behind: what it reads from the store becomes nobody else's, and what
  // it finds in memory keeps its deadline in the store.
  bool no_store = false;
};

struct SealOptions {
  Digest tenant = {};
  bool no_store = false;  // the page stays the request's own, on no tier
  StoreLimits limits{};   // of the tenant in the store; memory is nobody's
};

struct PageCacheOptions {
  size_t max_queued_pages = 256;  // pinned while they wait to be written
  size_t batch_pages = 64;        // read or written at once
};

struct PageCacheStats {
  PagePoolStats pool;
  size_t resident_pages = 0;  // complete, findable by hash
  size_t resident_bytes = 0;
  size_t pinned_pages = 0;  // of these: used by somebody, not evictable now
  uint64_t evictions = 0;

  uint64_t lookups = 0;
  uint64_t blocks_looked_up = 0;
  uint64_t resident_hits = 0;  // blocks
  uint64_t store_hits = 0;     // blocks
  uint64_t bytes_read = 0;
  std::array<uint64_t, kNumMissReasons> miss_reasons{};  // lookups by MissReason

  uint64_t seals = 0;         // blocks that became resident
  uint64_t shared_seals = 0;  // blocks that were resident already: their bytes are kept once
  uint64_t unequal_seals =
      0;  // stays 0: equal hashes with unequal bytes, a broken promise of identity

  size_t overdue_reads = 0;  // reads of the store past their deadline and still under way
  WriteBehindStats writes;
};

class PageCache {
 public:
  // `store` may be null.
  PageCache(std::unique_ptr<PagePool> pool, KvStore* store, const PageCacheOptions& options = {});
  ~PageCache();
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  // For block tables. A full pool evicts resident pages that nobody pins before it refuses.
  PagePool* pool() { return pool_.get(); }

  // `chain`: full blocks, each the parent of the next; it need not begin at a key root. Takes no
  // page for blocks that are not there. With too few free pages the hit is shorter.
  PrefixHit Lookup(std::span<const BlockIdentity> chain, const LookupOptions& options = {});

  // `blocks` are those of a chain that a lookup did not find. On kCompute the caller computes and
  // seals them in order, and drops the claim when it is done or gives up.
  ClaimResult Claim(std::span<const BlockIdentity> blocks, std::chrono::milliseconds timeout,
                    const std::atomic<bool>* cancel = nullptr);

  // Publishes a completed block, whose page nobody writes to any more, and queues it for the store.
  // Returns the page to go on with: where the block is resident already, the resident one.
  PageHandle Seal(PageHandle page, const BlockIdentity& block, const SealOptions& options);

  // Forgets the tenant's pages: none is found in memory any more, and none that waits to be written
  // is written after this; the store itself is erased by its owner, before and after. What its sessions hold
  // they keep. False when a write that was under way has not ended within `timeout`.
  bool Erase(const Digest& tenant, std::chrono::milliseconds timeout);

  // Where each block would be served from; extends and loads nothing.
  std::vector<std::optional<CacheTier>> Find(std::span<const BlockIdentity> blocks) const;

  // Why a block that Find did not find is not there; kNone when it has come meanwhile.
  MissReason ReasonOfMiss(const BlockIdentity& block, std::chrono::milliseconds timeout) const;

  // Waits until all that was sealed is durable or refused, or `timeout` has passed. True when it
  // is.
  bool Flush(std::chrono::milliseconds timeout);

  PageCacheStats stats() const;

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  // One load of a block from the store, which other requests for the block wait for.
  struct Load {
    bool is_done = false;
    MissReason result = MissReason::kNone;
    PageHandle page;  // pins it for those who wait
    uint64_t erasures = 0;  // before it began: what an erasure overtook does not become resident
  };

  void PinResident(std::span<const BlockIdentity> chain, PrefixHit* hit);
  bool Extend(std::span<const BlockIdentity> chain, Deadline deadline, const LookupOptions& options,
              PrefixHit* hit);
  bool AwaitLoad(std::shared_ptr<Load> load, Deadline deadline, PrefixHit* hit);
  bool LoadRun(std::span<const BlockIdentity> run, Deadline deadline, const LookupOptions& options,
               PrefixHit* hit);
  std::vector<std::shared_ptr<Load>> BeginLoads(std::span<const BlockIdentity> run);
  void EndLoads(std::span<const BlockIdentity> run, std::span<const std::shared_ptr<Load>> loads,
                const Digest& tenant, StoreRead* read);
  void RecordLookup(std::span<const BlockIdentity> chain, const PrefixHit& hit, bool no_store);
  bool EvictOne();

  // Constant after construction.
  const PageCacheOptions options_;
  KvStore* const store_;  // may be null
  const std::unique_ptr<PagePool> pool_;

  ComputeClaims claims_;

  mutable std::mutex mutex_;
  std::condition_variable load_done_;
  PrefixIndex index_;                                                       // guarded by mutex_
  std::unordered_map<BlockHash, std::shared_ptr<Load>, DigestHash> loads_;  // guarded by mutex_
  uint64_t erasures_ = 0;                                                   // guarded by mutex_
  PageCacheStats counters_;  // guarded by mutex_: what is counted; the rest is filled in by stats()

  // Null without a store. Last: they end, with their threads and pins, before the rest does.
  std::unique_ptr<StoreReader> reader_;
  std::unique_ptr<WriteBehind> writer_;
};

}  // namespace emberkv
