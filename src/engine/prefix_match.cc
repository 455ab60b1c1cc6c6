#include "engine/prefix_match.h"

#include <iterator>
#include <utility>

namespace emberkv {
namespace {

// Full blocks of a prompt that may be hits: the last token is always computed.
size_t NumReusableBlocks(std::span<const int32_t> prompt, int block_size) {
  return prompt.empty() ? 0 : (prompt.size() - 1) / static_cast<size_t>(block_size);
}

// Appends what the cache has of `chain`; returns whether it was anything.
bool Append(PageCache* cache, std::span<const BlockIdentity> chain, const LookupOptions& options,
            PrefixMatch* match, MissReason* reason) {
  PrefixHit hit = cache->Lookup(chain, options);
  *reason = hit.miss_reason;
  match->bytes_read += hit.bytes_read;
  match->seconds += hit.seconds;
  for (size_t i = 0; i < hit.num_blocks(); ++i) match->chain.push_back(chain[i].hash);
  match->tiers.insert(match->tiers.end(), hit.tiers.begin(), hit.tiers.end());
  std::move(hit.pages.begin(), hit.pages.end(), std::back_inserter(match->pages));
  return hit.num_blocks() > 0;
}

}  // namespace

PrefixMatch FindPrefix(PageCache* cache, const BlockHash& root, std::span<const int32_t> prompt,
                       int block_size, bool takes_replayed, const LookupOptions& options) {
  PrefixMatch match;
  const size_t reusable = NumReusableBlocks(prompt, block_size);
  if (reusable == 0) {
    match.miss_reason = MissReason::kTooShort;
    return match;
  }
  while (match.chain.size() < reusable) {
    const size_t here = match.chain.size() * static_cast<size_t>(block_size);
    const std::span<const int32_t> rest =
        prompt.subspan(here, (reusable - match.chain.size()) * static_cast<size_t>(block_size));
    const BlockHash parent = match.chain.empty() ? root : match.chain.back();
    if (Append(cache, ChainBlocks(parent, match.provenance, rest, block_size), options, &match,
               &match.miss_reason)) {
      continue;  // either all is found, or the replayed chain may go on where this one ends
    }
    const Provenance after_replay{here};
    MissReason replayed_reason;
    if (!takes_replayed || here == 0 || match.provenance == after_replay ||
        !Append(cache, ChainBlocks(parent, after_replay, rest, block_size), options, &match,
                &replayed_reason)) {
      break;
    }
    match.provenance = after_replay;
    match.miss_reason = replayed_reason;
  }
  return match;
}

std::vector<BlockIdentity> MissingBlocks(const PrefixMatch& match, const BlockHash& root,
                                         std::span<const int32_t> prompt, int block_size) {
  const size_t block = static_cast<size_t>(block_size);
  const size_t here = match.chain.size() * block;
  const size_t end = NumReusableBlocks(prompt, block_size) * block;
  return ChainBlocks(match.chain.empty() ? root : match.chain.back(), match.provenance,
                     prompt.subspan(here, end - here), block_size);
}

}  // namespace emberkv
