#include "cache/page_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace emberkv {
namespace {

// For what is asked without a request that would set a time.
constexpr std::chrono::milliseconds kProbeTimeout{2000};

using std::chrono::steady_clock;

double SecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

std::chrono::milliseconds Remaining(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

MissReason ReasonOf(GetOutcome outcome) {
  switch (outcome) {
    case GetOutcome::kHit:
      return MissReason::kNone;
    case GetOutcome::kNeverSeen:
      return MissReason::kNeverSeen;
    case GetOutcome::kExpired:
      return MissReason::kExpired;
    case GetOutcome::kRefused:
      return MissReason::kRefused;
    case GetOutcome::kCorrupt:
      return MissReason::kCorrupt;
    case GetOutcome::kQuarantined:
      return MissReason::kQuarantined;
    case GetOutcome::kTimeout:
      return MissReason::kTimeout;
    case GetOutcome::kFailed:
      break;
  }
  return MissReason::kFailed;
}

void Add(PageHandle page, CacheTier tier, PrefixHit* hit) {
  hit->pages.push_back(std::move(page));
  hit->tiers.push_back(tier);
}

}  // namespace

const char* CacheTierName(CacheTier tier) {
  return tier == CacheTier::kResident ? "resident" : "store";
}

const char* MissReasonName(MissReason reason) {
  static constexpr std::array<const char*, kNumMissReasons> kNames = {
      "none",    "too short",   "not resident", "never seen", "expired",    "refused",
      "corrupt", "quarantined", "timeout",      "failed",     "store hung", "no free page"};
  return kNames[static_cast<size_t>(reason)];
}

PageCache::PageCache(std::unique_ptr<PagePool> pool, KvStore* store,
                     const PageCacheOptions& options)
    : options_(options), store_(store), pool_(std::move(pool)) {
  pool_->SetReclaim([this] { return EvictOne(); });
  if (store_ == nullptr) return;
  reader_ = std::make_unique<StoreReader>(store_, pool_->page_bytes());
  writer_ = std::make_unique<WriteBehind>(store_, pool_->page_bytes(), options_.max_queued_pages,
                                          options_.batch_pages);
}

PageCache::~PageCache() = default;

PrefixHit PageCache::Lookup(std::span<const BlockIdentity> chain, const LookupOptions& options) {
  const auto start = steady_clock::now();
  const Deadline deadline = start + options.timeout;
  PrefixHit hit;
  if (chain.empty()) hit.miss_reason = MissReason::kTooShort;
  PinResident(chain, &hit);
  while (hit.num_blocks() < chain.size()) {
    if (!Extend(chain.subspan(hit.num_blocks()), deadline, options, &hit)) break;
    PinResident(chain, &hit);
  }
  hit.seconds = SecondsSince(start);
  RecordLookup(chain, hit, options.no_store);
  return hit;
}

void PageCache::PinResident(std::span<const BlockIdentity> chain, PrefixHit* hit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (hit->num_blocks() < chain.size()) {
    PageHandle page = index_.Find(chain[hit->num_blocks()].hash);
    if (!page) return;
    Add(std::move(page), CacheTier::kResident, hit);
  }
}

// Adds blocks from the front of `rest`, whose first was not resident a moment ago. Returns false,
// with the reason, where the prefix ends.
bool PageCache::Extend(std::span<const BlockIdentity> rest, Deadline deadline,
                       const LookupOptions& options, PrefixHit* hit) {
  const auto ends = [hit](MissReason reason) {
    hit->miss_reason = reason;
    return false;
  };
  if (store_ == nullptr) return ends(MissReason::kNotResident);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto load = loads_.find(rest.front().hash);
    if (load != loads_.end()) {
      const std::shared_ptr<Load> shared = load->second;
      lock.unlock();
      return AwaitLoad(shared, deadline, hit);
    }
  }
  if (reader_->is_hung()) return ends(MissReason::kStoreHung);
  if (Remaining(deadline).count() == 0) return ends(MissReason::kTimeout);

  rest = rest.first(std::min(rest.size(), options_.batch_pages));
  std::vector<BlockHash> keys;
  keys.reserve(rest.size());
  for (const BlockIdentity& block : rest) keys.push_back(block.hash);
  const std::optional<std::vector<bool>> is_stored = reader_->Contains(std::move(keys), Remaining(deadline));
  if (!is_stored) return ends(MissReason::kTimeout);
  size_t run = static_cast<size_t>(std::ranges::find(*is_stored, false) - is_stored->begin());
  if (run == 0) {
    const GetOutcome outcome = reader_->ReasonOfMiss(rest.front(), Remaining(deadline));
    if (outcome != GetOutcome::kHit) return ends(ReasonOf(outcome));
    run = 1;  // stored since it was asked for
  }
  return LoadRun(rest.first(run), deadline, options, hit);
}

bool PageCache::AwaitLoad(std::shared_ptr<Load> load, Deadline deadline, PrefixHit* hit) {
  const auto start = steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  const bool is_done = load_done_.wait_until(lock, deadline, [&] { return load->is_done; });
  hit->store_seconds += SecondsSince(start);
  hit->miss_reason = is_done ? load->result : MissReason::kTimeout;
  if (hit->miss_reason != MissReason::kNone) return false;
  Add(load->page.Share(), CacheTier::kStore, hit);
  return true;
}

// Loads a run of blocks that the store says it has.
bool PageCache::LoadRun(std::span<const BlockIdentity> run, Deadline deadline,
                        const LookupOptions& options, PrefixHit* hit) {
  std::vector<std::shared_ptr<Load>> loads;
  if (!options.no_store) {
    loads = BeginLoads(run);
    if (loads.empty()) return true;  // came, or is being loaded, since it was looked for
    run = run.first(loads.size());
  }
  std::vector<PageHandle> pages;
  while (pages.size() < run.size()) {
    Result<PageHandle> page = pool_->AcquireUncleared();
    if (!page.ok()) break;
    pages.push_back(std::move(page).value());
  }
  StoreRead read;
  if (!pages.empty()) {
    const auto start = steady_clock::now();
    const size_t num_pages = pages.size();
    read = reader_->Read(run.first(num_pages), std::move(pages), Remaining(deadline));
    hit->store_seconds += SecondsSince(start);
  }
  if (!options.no_store) EndLoads(run, loads, options.tenant, &read);

  size_t num_hits = 0;
  bool is_unbroken = true;
  for (size_t i = 0; i < read.pages.size(); ++i) {
    const bool is_hit = read.outcomes[i] == GetOutcome::kHit;
    num_hits += is_hit ? 1 : 0;
    if (is_unbroken && is_hit) Add(std::move(read.pages[i]), CacheTier::kStore, hit);
    if (is_unbroken && !is_hit) hit->miss_reason = ReasonOf(read.outcomes[i]);
    is_unbroken = is_unbroken && is_hit;
  }
  hit->bytes_read += num_hits * pool_->page_bytes();
  if (is_unbroken && read.pages.size() < run.size()) hit->miss_reason = MissReason::kNoPage;
  return hit->miss_reason == MissReason::kNone;
}

// Makes this request the one that loads the first blocks of `run`, up to one that is resident or
// that another request loads already.
std::vector<std::shared_ptr<PageCache::Load>> PageCache::BeginLoads(
    std::span<const BlockIdentity> run) {
  std::vector<std::shared_ptr<Load>> loads;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const BlockIdentity& block : run) {
    if (index_.Contains(block.hash) || loads_.contains(block.hash)) break;
    loads.push_back(std::make_shared<Load>());
    loads.back()->erasures = erasures_;
    loads_.emplace(block.hash, loads.back());
  }
  return loads;
}

// Publishes what was read and tells those who wait. A block that was sealed meanwhile stays as it
// is.
void PageCache::EndLoads(std::span<const BlockIdentity> run,
                         std::span<const std::shared_ptr<Load>> loads, const Digest& tenant,
                         StoreRead* read) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < run.size(); ++i) {
      Load& load = *loads[i];
      load.is_done = true;
      load.result = i < read->outcomes.size() ? ReasonOf(read->outcomes[i]) : MissReason::kNoPage;
      if (load.result == MissReason::kNone) {
        PageHandle& page = read->pages[i];
        if (load.erasures == erasures_ &&
            !index_.Insert(run[i].hash, run[i].parent, page.Share(), tenant)) {
          page = index_.Find(run[i].hash);
        }
        load.page = page.Share();
      }
      loads_.erase(run[i].hash);
    }
  }
  load_done_.notify_all();
}

void PageCache::RecordLookup(std::span<const BlockIdentity> chain, const PrefixHit& hit,
                             bool no_store) {
  std::vector<BlockHash> served_from_memory;
  for (size_t i = 0; i < hit.num_blocks(); ++i) {
    if (hit.tiers[i] == CacheTier::kResident) served_from_memory.push_back(chain[i].hash);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++counters_.lookups;
    counters_.blocks_looked_up += chain.size();
    counters_.resident_hits += served_from_memory.size();
    counters_.store_hits += hit.num_blocks() - served_from_memory.size();
    counters_.bytes_read += hit.bytes_read;
    ++counters_.miss_reasons[static_cast<size_t>(hit.miss_reason)];
  }
  if (store_ != nullptr && !no_store) writer_->Touch(served_from_memory);
}

ClaimResult PageCache::Claim(std::span<const BlockIdentity> blocks,
                             std::chrono::milliseconds timeout, const std::atomic<bool>* cancel) {
  ClaimResult result = claims_.Claim(blocks, timeout, cancel);
  if (result.outcome != ClaimOutcome::kCompute || blocks.empty()) return result;
  // A claim is let go of after its blocks are sealed: what another request computed between this
  // one's lookup and its claim is resident by now.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!index_.Contains(blocks.front().hash)) return result;
  return {ClaimOutcome::kLookAgain, {}};
}

PageHandle PageCache::Seal(PageHandle page, const BlockIdentity& block,
                           const SealOptions& options) {
  if (options.no_store) return page;
  PageHandle resident;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    resident = index_.Find(block.hash);
    if (!resident) {
      index_.Insert(block.hash, block.parent, page.Share(), options.tenant);
      ++counters_.seals;
    }
  }
  claims_.Finish(block.hash);
  if (!resident) {
    if (store_ != nullptr) writer_->Push(page.Share(), block, options.tenant, options.limits);
    return page;
  }
  const bool is_equal = std::memcmp(resident.bytes(), page.bytes(), pool_->page_bytes()) == 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++(is_equal ? counters_.shared_seals : counters_.unequal_seals);
  return is_equal ? std::move(resident) : std::move(page);
}

bool PageCache::Erase(const Digest& tenant, std::chrono::milliseconds timeout) {
  const bool is_quiet = store_ == nullptr || writer_->Drop(tenant, timeout);
  std::vector<PageHandle> erased;  // go back to the pool outside the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  ++erasures_;
  erased = index_.Erase(tenant);
  return is_quiet;
}

std::vector<std::optional<CacheTier>> PageCache::Find(std::span<const BlockIdentity> blocks) const {
  std::vector<BlockHash> keys;
  for (const BlockIdentity& block : blocks) keys.push_back(block.hash);
  std::vector<bool> is_stored(keys.size());
  if (store_ != nullptr && !reader_->is_hung()) {
    is_stored = reader_->Contains(keys, kProbeTimeout).value_or(std::move(is_stored));
  }
  std::vector<std::optional<CacheTier>> tiers(keys.size());
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (index_.Contains(keys[i])) {
      tiers[i] = CacheTier::kResident;
    } else if (is_stored[i]) {
      tiers[i] = CacheTier::kStore;
    }
  }
  return tiers;
}

MissReason PageCache::ReasonOfMiss(const BlockIdentity& block, std::chrono::milliseconds timeout) const {
  if (store_ == nullptr) return MissReason::kNotResident;
  if (reader_->is_hung()) return MissReason::kStoreHung;
  return ReasonOf(reader_->ReasonOfMiss(block, timeout));
}

bool PageCache::Flush(std::chrono::milliseconds timeout) {
  return store_ == nullptr || writer_->Flush(timeout);
}

PageCacheStats PageCache::stats() const {
  PageCacheStats stats;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stats = counters_;
    stats.resident_pages = index_.size();
    stats.pinned_pages = index_.num_pinned();
  }
  stats.pool = pool_->stats();
  stats.resident_bytes = stats.resident_pages * pool_->page_bytes();
  if (store_ != nullptr) {
    stats.overdue_reads = reader_->num_overdue();
    stats.writes = writer_->stats();
  }
  return stats;
}

bool PageCache::EvictOne() {
  PageHandle page;  // goes back to the pool outside the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  page = index_.Evict();
  if (page) ++counters_.evictions;
  return static_cast<bool>(page);
}

}  // namespace emberkv
