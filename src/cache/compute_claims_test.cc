#include "cache/compute_claims.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace emberkv {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kForever{600'000};

std::vector<BlockIdentity> Blocks(const std::vector<std::string>& names) {
  std::vector<BlockIdentity> blocks;
  for (const std::string& name : names) blocks.push_back({Sha256(name), {}, {}, {}});
  return blocks;
}

void AwaitWaiting(const ComputeClaims& claims, size_t count) {
  while (claims.num_waiting() < count) std::this_thread::yield();
}

TEST(ComputeClaims, TheFirstComputesAndLetsGo) {
  ComputeClaims claims;
  const auto blocks = Blocks({"a", "b"});
  {
    const ClaimResult first = claims.Claim(blocks, kForever, nullptr);
    EXPECT_EQ(first.outcome, ClaimOutcome::kCompute);
    EXPECT_TRUE(first.claim);
    EXPECT_EQ(claims.num_claimed(), 2u);
    EXPECT_EQ(claims.Claim(Blocks({"c"}), kForever, nullptr).outcome, ClaimOutcome::kCompute)
        << "other blocks are nobody's";
  }
  EXPECT_EQ(claims.num_claimed(), 0u);
}

TEST(ComputeClaims, AWaitEndsAtItsDeadline) {
  ComputeClaims claims;
  const auto held = claims.Claim(Blocks({"a"}), kForever, nullptr);
  const auto late = claims.Claim(Blocks({"a"}), milliseconds(0), nullptr);
  EXPECT_EQ(late.outcome, ClaimOutcome::kTimedOut);
  EXPECT_FALSE(late.claim);
  EXPECT_EQ(claims.num_claimed(), 1u);
}

TEST(ComputeClaims, Case_R04_ACancelledWaitEndsAndLeavesNothing) {
  ComputeClaims claims;
  auto held = claims.Claim(Blocks({"a"}), kForever, nullptr);
  std::atomic<bool> cancel = false;
  ClaimOutcome outcome = ClaimOutcome::kCompute;
  std::thread waiter([&] {
    outcome = claims.Claim(Blocks({"a", "b"}), kForever, &cancel).outcome;
  });
  AwaitWaiting(claims, 1);
  cancel = true;
  waiter.join();
  EXPECT_EQ(outcome, ClaimOutcome::kCancelled);
  EXPECT_EQ(claims.num_waiting(), 0u);
  EXPECT_EQ(claims.num_claimed(), 1u);
  held.claim.Release();
  EXPECT_EQ(claims.num_claimed(), 0u);
}

TEST(ComputeClaims, FinishingTheSharedBlocksLetsWaitersGo) {
  ComputeClaims claims;
  const auto held = claims.Claim(Blocks({"a", "b", "c"}), kForever, nullptr);
  ClaimOutcome outcome = ClaimOutcome::kCompute;
  std::thread waiter([&] {
    outcome = claims.Claim(Blocks({"a", "b", "x"}), kForever, nullptr).outcome;
  });
  AwaitWaiting(claims, 1);
  claims.Finish(Sha256("a"));
  EXPECT_EQ(claims.num_waiting(), 1u) << "b is still being computed";
  claims.Finish(Sha256("b"));
  waiter.join();  // although c is not finished
  EXPECT_EQ(outcome, ClaimOutcome::kLookAgain);
  EXPECT_EQ(claims.num_claimed(), 1u);
}

TEST(ComputeClaims, GivingUpLetsAnotherCompute) {
  ComputeClaims claims;
  auto held = claims.Claim(Blocks({"a"}), kForever, nullptr);
  ClaimOutcome after_wait = ClaimOutcome::kCompute;
  ClaimOutcome again = ClaimOutcome::kTimedOut;
  std::thread waiter([&] {
    after_wait = claims.Claim(Blocks({"a"}), kForever, nullptr).outcome;
    again = claims.Claim(Blocks({"a"}), kForever, nullptr).outcome;
  });
  AwaitWaiting(claims, 1);
  held.claim = ComputeClaim();
  waiter.join();
  EXPECT_EQ(after_wait, ClaimOutcome::kLookAgain);
  EXPECT_EQ(again, ClaimOutcome::kCompute);
}

TEST(ComputeClaims, AMovedClaimIsHeldOnce) {
  ComputeClaims claims;
  auto result = claims.Claim(Blocks({"a"}), kForever, nullptr);
  ComputeClaim moved = std::move(result.claim);
  result.claim.Release();
  EXPECT_EQ(claims.num_claimed(), 1u);
  ComputeClaim other = claims.Claim(Blocks({"b"}), kForever, nullptr).claim;
  other = std::move(moved);
  EXPECT_EQ(claims.num_claimed(), 1u) << "b was let go of";
}

}  // namespace
}  // namespace emberkv
