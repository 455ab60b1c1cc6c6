// Resident pages of complete blocks by block hash. The index holds one handle of each page, so
// pages stay in the pool after their sessions end, until they are evicted.
//
// Eviction takes the page used longest ago that only the index pins and that no resident page
// continues (a leaf): prefixes outlive what extends them. Where pins hold all leaves, it takes the
// deepest unpinned page before such a leaf, so that a few pinned pages never hold a whole chain.
//
// Not thread-safe: its owner's lock guards every call. Handles given out may live on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "cache/page_pool.h"
#include "layout/identity.h"

namespace emberkv {

class PrefixIndex {
 public:
  // Makes the page resident as just used. Returns false, and drops `page`, when the hash is
  // resident.
  bool Insert(const BlockHash& hash, const BlockHash& parent, PageHandle page,
              const Digest& tenant = {});

  // A handle of the resident page, which then counts as just used; an empty one when there is none.
  PageHandle Find(const BlockHash& hash);

  bool Contains(const BlockHash& hash) const { return nodes_.contains(hash); }

  // Removes one page and returns its handle, the last one; an empty one when every page is pinned.
  PageHandle Evict();

  // Removes all pages of the tenant, pinned ones too: their sessions keep their handles.
  std::vector<PageHandle> Erase(const Digest& tenant);

  size_t size() const { return nodes_.size(); }
  size_t num_pinned() const;  // pages with other handles than the index's; looks at every page

 private:
  struct Node {
    BlockHash hash;
    BlockHash parent;
    Digest tenant;
    PageHandle page;
    uint64_t last_use = 0;
    uint64_t last_walk = 0;  // of the searches beyond the leaves, the last that came by
  };

  bool IsLeaf(const Node& node) const { return !num_children_.contains(node.hash); }
  Node* FindNode(const BlockHash& hash);
  PageHandle Remove(Node* node);

  uint64_t uses_ = 0;
  uint64_t walks_ = 0;
  std::unordered_map<BlockHash, Node, DigestHash> nodes_;
  // Resident children of every hash that has any, be it resident or not.
  std::unordered_map<BlockHash, size_t, DigestHash> num_children_;
  std::map<uint64_t, Node*> leaves_;  // by last use
};

}  // namespace emberkv
