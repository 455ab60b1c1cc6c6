// A full block as caches know it: its hash, and all that the hash was made of.
//
// Plain values and a pure function; any thread. `tokens` views the sequence's ids and must outlive
// the identity's use; whoever keeps a block longer copies them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/identity.h"

namespace emberkv {

struct BlockIdentity {
  BlockHash hash;    // == HashBlock(parent, provenance, tokens)
  BlockHash parent;  // the previous block's hash or the key root
  Provenance provenance;
  std::span<const int32_t> tokens;
};

// The full blocks of `tokens` as a chain from `parent`; what is left of a block at the end has
// none.
std::vector<BlockIdentity> ChainBlocks(const BlockHash& parent, Provenance provenance,
                                       std::span<const int32_t> tokens, int block_size);

}  // namespace emberkv
