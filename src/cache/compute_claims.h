// Single flight for computing: of many requests for one cold prefix, one computes its blocks and
// the others wait for them.
//
// Any thread may call. A request holds one claim at a time and asks for no other while it does, so
// that waits cannot form a circle. The claims object outlives every claim and every wait.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_identity.h"

namespace emberkv {

class ComputeClaims;

// The right and duty to compute some blocks. What is not finished when it goes is free to others
// again.
class ComputeClaim {
 public:
  ComputeClaim() = default;
  ComputeClaim(ComputeClaim&& other) noexcept;
  ComputeClaim& operator=(ComputeClaim&& other) noexcept;
  ~ComputeClaim() { Release(); }

  explicit operator bool() const { return claims_ != nullptr; }
  void Release();

 private:
  friend class ComputeClaims;
  ComputeClaims* claims_ = nullptr;
  uint64_t id_ = 0;
  std::vector<BlockHash> blocks_;
};

enum class ClaimOutcome {
  kCompute,    // the caller holds the claim and computes
  kLookAgain,  // somebody else computed meanwhile, or gave up: look up again, then claim the rest
  kTimedOut,   // others still compute; the caller computes without a claim
  kCancelled,
};

struct ClaimResult {
  ClaimOutcome outcome = ClaimOutcome::kTimedOut;
  ComputeClaim claim;  // holds one on kCompute
};

class ComputeClaims {
 public:
  // Claims all of `blocks`, or waits at most `timeout` until no other claim holds any of them.
  // `cancel`, when set, is looked at every few milliseconds of the wait.
  ClaimResult Claim(std::span<const BlockIdentity> blocks, std::chrono::milliseconds timeout,
                    const std::atomic<bool>* cancel);

  // The block is there: nobody needs to wait for it.
  void Finish(const BlockHash& block);

  size_t num_claimed() const;
  size_t num_waiting() const;

 private:
  friend class ComputeClaim;
  void Release(uint64_t id, std::span<const BlockHash> blocks);
  const BlockHash* LastClaimed(std::span<const BlockIdentity> blocks) const;

  mutable std::mutex mutex_;
  std::condition_variable released_;
  uint64_t last_id_ = 0;                                         // guarded by mutex_
  size_t num_waiting_ = 0;                                       // guarded by mutex_
  std::unordered_map<BlockHash, uint64_t, DigestHash> holders_;  // guarded by mutex_: claim ids
};

}  // namespace emberkv
