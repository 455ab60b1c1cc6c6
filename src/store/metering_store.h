// A KvStore around any other that counts its operations and how long they take, as plain numbers.
//
// Thread-safe; adds two clock readings and a short lock to each operation. What became of the pages
// is in the inner store's Stats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "store/kv_store.h"

namespace emberkv {

struct OperationMeter {
  // Bucket i counts calls that took less than 2^i us (and not less than 2^(i-1)); the last one, all
  // longer ones too.
  static constexpr size_t kNumBuckets = 32;

  uint64_t calls = 0;      // finished
  uint64_t in_flight = 0;  // started and not finished
  uint64_t items = 0;      // pages or keys in finished calls
  uint64_t total_us = 0;
  uint64_t max_us = 0;
  std::array<uint64_t, kNumBuckets> buckets{};
};

struct StoreMeter {
  OperationMeter put;
  OperationMeter get;  // from Get until Wait returns, or until the read is destroyed without Wait
  OperationMeter contains;
  OperationMeter touch;
  OperationMeter erase_tenant;
  OperationMeter sweep;
};

class MeteringStore : public KvStore {
 public:
  // `clock` outlives the store.
  MeteringStore(std::unique_ptr<KvStore> inner, const Clock* clock);

  std::vector<PutOutcome> Put(std::span<const PageRecord> pages) override;
  std::unique_ptr<PendingGet> Get(std::vector<GetRequest> requests,
                                  std::chrono::milliseconds timeout) override;
  std::vector<bool> Contains(std::span<const BlockHash> keys) override;
  void Touch(std::span<const BlockHash> keys) override;
  Result<uint64_t> EraseTenant(const Digest& tenant) override;
  uint64_t Sweep() override;
  StoreStats Stats() override { return inner_->Stats(); }

  StoreMeter Meter() const;

 private:
  class Timing;
  class MeteredGet;

  // Constant after construction.
  const std::unique_ptr<KvStore> inner_;
  const Clock* const clock_;

  mutable std::mutex mutex_;
  StoreMeter meter_;  // guarded by mutex_
};

}  // namespace emberkv
