// The longest prefix of a prompt that the caches hold, over canonical blocks and those computed after
// bounded replays.
//
// FindPrefix may be called from any thread; a PrefixMatch belongs to one request and pins its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_cache.h"
#include "layout/identity.h"

namespace emberkv {

struct PrefixMatch {
  std::vector<PageHandle> pages;   // of the first blocks, in order; read-only
  std::vector<BlockHash> chain;    // their hashes
  std::vector<CacheTier> tiers;    // where each was found
  Provenance provenance;           // of the last block
  MissReason miss_reason = MissReason::kNone;  // why the next block was not there
  size_t bytes_read = 0;
  double seconds = 0;              // of the whole search, reading included
};

// Walks the canonical chain from `root`; where it ends, and `takes_replayed`, the chain that continues
// after a replay there, and so on. Leaves at least the last token of the prompt to compute.
PrefixMatch FindPrefix(PageCache* cache, const BlockHash& root, std::span<const int32_t> prompt,
                       int block_size, bool takes_replayed, const LookupOptions& options);

// The blocks of `prompt` after `match` that could have been hits, as a cold run or its continuation
// would make them: what a request claims before it computes.
std::vector<BlockIdentity> MissingBlocks(const PrefixMatch& match, const BlockHash& root,
                                         std::span<const int32_t> prompt, int block_size);

}  // namespace emberkv
