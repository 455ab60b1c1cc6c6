#include "cache/prefix_index.h"

#include <utility>

namespace emberkv {

bool PrefixIndex::Insert(const BlockHash& hash, const BlockHash& parent, PageHandle page,
                         const Digest& tenant) {
  const auto [at, is_new] = nodes_.try_emplace(hash);
  if (!is_new) return false;
  Node& node = at->second;
  node.hash = hash;
  node.parent = parent;
  node.tenant = tenant;
  node.page = std::move(page);
  node.last_use = ++uses_;
  if (IsLeaf(node)) leaves_.emplace(node.last_use, &node);
  if (++num_children_[parent] == 1) {
    if (const Node* up = FindNode(parent)) leaves_.erase(up->last_use);
  }
  return true;
}

PageHandle PrefixIndex::Find(const BlockHash& hash) {
  Node* node = FindNode(hash);
  if (node == nullptr) return {};
  auto leaf = leaves_.extract(node->last_use);
  node->last_use = ++uses_;
  if (!leaf.empty()) {
    leaf.key() = node->last_use;
    leaves_.insert(std::move(leaf));
  }
  return node->page.Share();
}

PageHandle PrefixIndex::Evict() {
  for (const auto& [use, leaf] : leaves_) {
    if (!leaf->page.is_shared()) return Remove(leaf);
  }
  ++walks_;
  for (const auto& [use, leaf] : leaves_) {
    for (Node* node = FindNode(leaf->parent); node != nullptr; node = FindNode(node->parent)) {
      if (node->last_walk == walks_) break;  // a prefix shared with an earlier leaf: pinned
      if (!node->page.is_shared()) return Remove(node);
      node->last_walk = walks_;
    }
  }
  return {};
}

std::vector<PageHandle> PrefixIndex::Erase(const Digest& tenant) {
  std::vector<Node*> erased;
  for (auto& [hash, node] : nodes_) {
    if (node.tenant == tenant) erased.push_back(&node);
  }
  std::vector<PageHandle> pages;
  for (Node* node : erased) pages.push_back(Remove(node));
  return pages;
}

size_t PrefixIndex::num_pinned() const {
  size_t pinned = 0;
  for (const auto& [hash, node] : nodes_) pinned += node.page.is_shared() ? 1 : 0;
  return pinned;
}

PrefixIndex::Node* PrefixIndex::FindNode(const BlockHash& hash) {
  const auto at = nodes_.find(hash);
  return at == nodes_.end() ? nullptr : &at->second;
}

PageHandle PrefixIndex::Remove(Node* node) {
  PageHandle page = std::move(node->page);
  leaves_.erase(node->last_use);
  const BlockHash parent = node->parent;
  nodes_.erase(BlockHash(node->hash));
  const auto siblings = num_children_.find(parent);
  if (--siblings->second == 0) {
    num_children_.erase(siblings);
    if (Node* up = FindNode(parent)) leaves_.emplace(up->last_use, up);
  }
  return page;
}

}  // namespace emberkv
