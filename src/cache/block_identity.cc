#include "cache/block_identity.h"

namespace emberkv {

std::vector<BlockIdentity> ChainBlocks(const BlockHash& parent, Provenance provenance,
                                       std::span<const int32_t> tokens, int block_size) {
  const size_t size = static_cast<size_t>(block_size);
  std::vector<BlockIdentity> chain;
  chain.reserve(tokens.size() / size);
  BlockHash last = parent;
  for (size_t begin = 0; begin + size <= tokens.size(); begin += size) {
    const std::span<const int32_t> block = tokens.subspan(begin, size);
    chain.push_back({HashBlock(last, provenance, block), last, provenance, block});
    last = chain.back().hash;
  }
  return chain;
}

}  // namespace emberkv
