#include "cache/compute_claims.h"

#include <algorithm>
#include <utility>

namespace emberkv {
namespace {

constexpr std::chrono::milliseconds kCancelPoll{10};

}  // namespace

ComputeClaim::ComputeClaim(ComputeClaim&& other) noexcept
    : claims_(std::exchange(other.claims_, nullptr)),
      id_(other.id_),
      blocks_(std::move(other.blocks_)) {}

ComputeClaim& ComputeClaim::operator=(ComputeClaim&& other) noexcept {
  if (this != &other) {
    Release();
    claims_ = std::exchange(other.claims_, nullptr);
    id_ = other.id_;
    blocks_ = std::move(other.blocks_);
  }
  return *this;
}

void ComputeClaim::Release() {
  if (claims_ == nullptr) return;
  std::exchange(claims_, nullptr)->Release(id_, blocks_);
  blocks_.clear();
}

ClaimResult ComputeClaims::Claim(std::span<const BlockIdentity> blocks,
                                 std::chrono::milliseconds timeout,
                                 const std::atomic<bool>* cancel) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock<std::mutex> lock(mutex_);
  bool has_waited = false;
  while (const BlockHash* last = LastClaimed(blocks)) {
    // Its holder computes in order, so one block stands for all; the claim of another holder that
    // comes after it is seen in the next round.
    const uint64_t holder = holders_.at(*last);
    const auto is_held = [&] {
      const auto at = holders_.find(*last);
      return at != holders_.end() && at->second == holder;
    };
    has_waited = true;
    ++num_waiting_;
    ClaimOutcome outcome = ClaimOutcome::kLookAgain;
    while (is_held()) {
      const auto now = std::chrono::steady_clock::now();
      if (cancel != nullptr && cancel->load()) {
        outcome = ClaimOutcome::kCancelled;
      } else if (now >= deadline) {
        outcome = ClaimOutcome::kTimedOut;
      } else {
        released_.wait_until(lock,
                             cancel == nullptr ? deadline : std::min(deadline, now + kCancelPoll));
        continue;
      }
      break;
    }
    --num_waiting_;
    if (outcome != ClaimOutcome::kLookAgain) return {outcome, {}};
  }
  if (has_waited) return {ClaimOutcome::kLookAgain, {}};

  ClaimResult result;
  result.outcome = ClaimOutcome::kCompute;
  result.claim.claims_ = this;
  result.claim.id_ = ++last_id_;
  result.claim.blocks_.reserve(blocks.size());
  for (const BlockIdentity& block : blocks) {
    result.claim.blocks_.push_back(block.hash);
    holders_.emplace(block.hash, last_id_);
  }
  return result;
}

void ComputeClaims::Finish(const BlockHash& block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (holders_.erase(block) > 0) released_.notify_all();
}

void ComputeClaims::Release(uint64_t id, std::span<const BlockHash> blocks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const BlockHash& block : blocks) {
    const auto at = holders_.find(block);
    if (at != holders_.end() && at->second == id) holders_.erase(at);
  }
  released_.notify_all();
}

size_t ComputeClaims::num_claimed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return holders_.size();
}

size_t ComputeClaims::num_waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_waiting_;
}

const BlockHash* ComputeClaims::LastClaimed(std::span<const BlockIdentity> blocks) const {
  for (size_t i = blocks.size(); i-- > 0;) {
    if (holders_.contains(blocks[i].hash)) return &blocks[i].hash;
  }
  return nullptr;
}

}  // namespace emberkv
