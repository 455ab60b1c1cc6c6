// A KvStore around any other that fails on demand: the faulty twin every user of a store is tested
// against. Without faults it is the inner store.
//
// Faults strike single pages: the next few of them, or each with a probability drawn from a seeded
// generator, so that a run can be repeated. Nothing ever sleeps: a hung read waits at a gate that
// the test opens, or for the caller's own deadline. Thread-safe. The store outlives its pending
// reads.
//
// Faults happen above the inner store, which verifies what it reads: it cannot be made to serve
// wrong bytes from here, and kCorruptGet answers as a store does that found them. To damage what
// lies in a store, use that store's own seam (MemoryStore::DamageForTest).
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "store/kv_store.h"

namespace emberkv {

enum class Fault {
  kFailPut,    // kFailed, nothing stored
  kRefusePut,  // kRefusedFull, nothing stored
  kLosePut,    // kStored, nothing stored: a disk that lies about its sync, seen after the power cut
  kFailGet,    // kFailed
  kCorruptGet,  // what would be a hit is kCorrupt, and the caller's buffer holds other bytes
  kHangGet,     // not read before the gate opens; kTimeout when the deadline passes first
};
inline constexpr size_t kNumFaults = 6;

class FaultInjectionStore : public KvStore {
 public:
  FaultInjectionStore(std::unique_ptr<KvStore> inner, uint64_t seed);

  // The next `count` pages of the operation meet the fault; later calls replace earlier ones. Where
  // several faults are due for one page, the first of the enumeration strikes.
  void StrikeNext(Fault fault, uint64_t count);
  // Each page meets the fault with this probability.
  void StrikeAtRandom(Fault fault, double probability);
  // No more faults. Hung reads stay hung.
  void StopFaults();

  uint64_t struck(Fault fault) const;  // pages, since construction

  // Reads that hang now go on and are read.
  void ReleaseHungGets();
  // Reads that hang now give kTimeout, as if their deadline had passed.
  void TimeOutHungGets();
  // Waits until this many reads (pages) hang in a Wait.
  void AwaitHungGets(uint64_t count);

  std::vector<PutOutcome> Put(std::span<const PageRecord> pages) override;
  std::unique_ptr<PendingGet> Get(std::vector<GetRequest> requests,
                                  std::chrono::milliseconds timeout) override;
  std::vector<bool> Contains(std::span<const BlockHash> keys) override {
    return inner_->Contains(keys);
  }
  void Touch(std::span<const BlockHash> keys) override { inner_->Touch(keys); }
  Result<uint64_t> EraseTenant(const Digest& tenant) override { return inner_->EraseTenant(tenant); }
  uint64_t Sweep() override { return inner_->Sweep(); }

  // The inner store's, with the injected outcomes counted as a store that failed this way would.
  StoreStats Stats() override;

 private:
  class FaultyGet;
  struct Plan {
    uint64_t next = 0;
    double probability = 0;
  };

  bool Strikes(Fault fault);  // mutex_ is held
  void OpenGate(bool reads_go_on);

  const std::unique_ptr<KvStore> inner_;  // constant after construction

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::mt19937_64 random_;
  std::array<Plan, kNumFaults> plans_;
  std::array<uint64_t, kNumFaults> struck_{};
  std::vector<bool> gate_openings_;  // of each opening: whether hung reads go on (or time out)
  uint64_t hanging_ = 0;             // pages at the gate
  uint64_t timed_out_ = 0;
  uint64_t corrupted_ = 0;
  uint64_t corrupted_bytes_ = 0;
  std::condition_variable gate_;
  std::condition_variable arrived_;
};

}  // namespace emberkv
