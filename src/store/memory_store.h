// A KvStore in memory: the whole contract but surviving the process. Its promises run on the
// monotonic clock, so no jump of the wall clock touches them.
//
// Thread-safe. Reads are finished when Get returns; they copy outside the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "store/kv_store.h"
#include "store/miss_reasons.h"
#include "store/retention_book.h"

namespace emberkv {

struct MemoryStoreOptions {
  uint64_t budget_bytes = 0;
  std::chrono::microseconds retention = std::chrono::hours(72);  // above 0
  size_t remembered_misses = size_t{1} << 16;  // keys whose reason of absence is kept
};

class MemoryStore : public KvStore {
 public:
  // `clock` outlives the store.
  MemoryStore(const MemoryStoreOptions& options, const Clock* clock);

  std::vector<PutOutcome> Put(std::span<const PageRecord> pages) override;
  std::unique_ptr<PendingGet> Get(std::vector<GetRequest> requests,
                                  std::chrono::milliseconds timeout) override;
  std::vector<bool> Contains(std::span<const BlockHash> keys) override;
  void Touch(std::span<const BlockHash> keys) override;
  Result<uint64_t> EraseTenant(const Digest& tenant) override;
  uint64_t Sweep() override;
  StoreStats Stats() override;

  // What a page of these sizes takes of the budget.
  static uint64_t StoredBytes(size_t num_tokens, size_t payload_bytes);

  struct StoredPage {
    BlockHash parent;
    Provenance provenance;
    Digest tenant;
    std::vector<int32_t> tokens;
    std::vector<uint8_t> payload;
    Digest checksum;  // of the payload
  };

  // Lets a test change what is stored, as failing memory would. False when the key is not there.
  bool DamageForTest(const BlockHash& key, const std::function<void(StoredPage&)>& damage);

 private:
  using PagePtr = std::shared_ptr<const StoredPage>;

  PutOutcome PutOne(const PageRecord& record);
  GetOutcome GetOne(const GetRequest& request);

  // The mutex is held.
  bool RenewIfThere(const PageRecord& record);
  PutOutcome Admit(const PageRecord& record, PagePtr page);
  void Retire(const std::vector<RetentionBook::Retired>& retired);

  // Constant after construction.
  const uint64_t budget_bytes_;
  const Clock* const clock_;

  std::mutex mutex_;
  // All guarded by mutex_; pages_ and book_ hold the same keys.
  std::unordered_map<BlockHash, PagePtr, DigestHash> pages_;
  RetentionBook book_;
  MissReasons misses_;
  StoreStats counters_;  // what is counted since opening; the rest is filled in by Stats
};

}  // namespace emberkv
