// The part of Session that deals with the caches: what a first prompt takes from them, and what
// completed blocks and their windows give to them.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/engine_parts.h"
#include "engine/session.h"

namespace emberkv {
namespace {

// How long a request waits for another that computes the same prefix before it computes itself, and how
// often it looks again after such a wait.
constexpr std::chrono::milliseconds kClaimTimeout{30'000};
constexpr int kMaxLooks = 16;

}  // namespace

// Looks the prompt's beginning up and claims the rest, so that of many requests for one cold prefix one
// computes it.
Status Session::ReusePrefix(std::span<const int32_t> prompt, const PrefillOptions& options,
                            ComputeClaim* claim) {
  const int block_size = parts_->model->layout().block_size;
  LookupOptions lookup;
  lookup.tenant = tenant_;
  lookup.no_store = options_.no_store;
  for (int look = 1;; ++look) {
    PrefixMatch match = FindPrefix(parts_->cache.get(), key_root_, prompt, block_size,
                                   MayReuseReplayed(options.replay), lookup);
    const std::vector<BlockIdentity> missing =
        MissingBlocks(match, key_root_, prompt, block_size);
    if (!missing.empty() && !options_.no_store) {
      ClaimResult result = parts_->cache->Claim(missing, kClaimTimeout, options.cancel);
      if (result.outcome == ClaimOutcome::kCancelled) {
        return Cancelled("stopped while another request computed the same beginning");
      }
      if (result.outcome == ClaimOutcome::kLookAgain && look < kMaxLooks) continue;
      *claim = std::move(result.claim);
    }
    const int64_t hit = static_cast<int64_t>(match.chain.size()) * block_size;
    std::shared_ptr<const WindowCheckpoint> checkpoint;
    if (hit > 0) checkpoint = parts_->windows->Get(match.chain.back());
    const ResumePlan plan =
        PlanResume(parts_->model->layout(), parts_->model->config().sliding_window, options.replay, hit,
                   checkpoint != nullptr, static_cast<int64_t>(prompt.size()));
    if (plan.restores_checkpoint) checkpoint_ = std::move(checkpoint);
    Resume(plan, std::move(match));
    return Status::Ok();
  }
}

void Session::Resume(const ResumePlan& plan, PrefixMatch match) {
  reuse_.hit_tokens = plan.hit;
  reuse_.replayed_tokens = plan.replayed();
  reuse_.resident_blocks = std::count(match.tiers.begin(), match.tiers.end(), CacheTier::kResident);
  reuse_.store_blocks = std::count(match.tiers.begin(), match.tiers.end(), CacheTier::kStore);
  reuse_.bytes_read = match.bytes_read;
  reuse_.restore_seconds = match.seconds;
  reuse_.from_checkpoint = checkpoint_ != nullptr;
  reuse_.miss_reason = MissReasonName(match.miss_reason);
  if (plan.hit == 0) return;

  for (PageHandle& page : match.pages) table_.AppendShared(std::move(page));
  chain_ = std::move(match.chain);
  provenance_ = match.provenance;
  // Windows rebuilt from truncated ones, or from global rows that were themselves approximations, give
  // rows that belong to this hit boundary alone.
  if (!plan.is_canonical || (!provenance_.is_canonical() && !plan.restores_checkpoint)) {
    provenance_ = {static_cast<uint64_t>(plan.hit)};
  }
  reuse_.replayed_at = provenance_.replayed_at;
  computed_ = plan.encoder_begin;
  state_.encoder_begin = plan.encoder_begin;
  state_.decoder_begin = plan.decoder_begin;
  state_.write_begin = plan.hit;
  resume_ = plan;
  if (computed_ == plan.hit) FinishReplay();
}

// At the hit boundary: from here on rows are new.
void Session::FinishReplay() {
  if (checkpoint_) {
    std::memcpy(windows_.data(), checkpoint_->windows.data(),
                std::min(windows_.size(), checkpoint_->windows.size()));
    state_.encoder_begin = 0;
    checkpoint_.reset();
  }
  resume_.reset();
}

// Back to a session without tokens.
void Session::StartOver() {
  tokens_.clear();
  table_.Trim(0);
  computed_ = 0;
  logits_.clear();
  state_.encoder_begin = state_.decoder_begin = state_.write_begin = 0;
  chain_.clear();
  provenance_ = {};
  resume_.reset();
  checkpoint_.reset();
  boundary_.reset();
  reuse_ = {};
}

// Publishes the blocks that are complete now: from here on they are shared and never written again.
void Session::SealBlocks() {
  if (!options_.reuses_prefixes || options_.no_store) return;
  const size_t block = static_cast<size_t>(parts_->model->layout().block_size);
  while ((chain_.size() + 1) * block <= static_cast<size_t>(computed_)) {
    const size_t index = chain_.size();
    const std::span<const int32_t> tokens(tokens_.data() + index * block, block);
    const BlockHash parent = chain_.empty() ? key_root_ : chain_.back();
    const BlockIdentity identity{HashBlock(parent, provenance_, tokens), parent, provenance_, tokens};
    table_.ReplaceShared(index, parts_->cache->Seal(table_.page(index).Share(), identity,
                                                    {tenant_, options_.no_store, options_.limits}));
    chain_.push_back(identity.hash);
    if (chain_.size() * block == static_cast<size_t>(computed_)) KeepBoundary();
  }
}

// Encoder layers come first in the rings, so their windows are one run of bytes. At a block boundary no
// compressor group is open: there are no tails to keep.
void Session::KeepBoundary() {
  const size_t bytes = parts_->model->layout().encoder_window_bytes();
  if (!boundary_) boundary_.emplace();
  boundary_->windows.assign(windows_.begin(), windows_.begin() + static_cast<int64_t>(bytes));
  boundary_hash_ = chain_.back();
}

void Session::PublishBoundary() {
  if (!boundary_) return;
  parts_->windows->Put(boundary_hash_, std::move(*boundary_), tenant_);
  boundary_.reset();
}

}  // namespace emberkv
