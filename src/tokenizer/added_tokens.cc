#include "tokenizer/added_tokens.h"

namespace emberkv {

const uint32_t* AddedTokens::Child(uint32_t node, char byte) const {
  for (const auto& [key, child] : nodes_[node].children) {
    if (key == byte) return &child;
  }
  return nullptr;
}

void AddedTokens::Add(std::string_view content, int32_t id) {
  uint32_t node = 0;
  for (const char byte : content) {
    if (const uint32_t* child = Child(node, byte)) {
      node = *child;
      continue;
    }
    const auto added = static_cast<uint32_t>(nodes_.size());
    nodes_[node].children.emplace_back(byte, added);
    nodes_.emplace_back();
    node = added;
  }
  nodes_[node].id = id;
}

std::optional<AddedTokens::Match> AddedTokens::Find(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    std::optional<Match> longest;
    uint32_t node = 0;
    for (size_t end = begin; end < text.size();) {
      const uint32_t* child = Child(node, text[end]);
      if (child == nullptr) break;
      node = *child;
      ++end;
      if (nodes_[node].id >= 0) longest = Match{begin, end, nodes_[node].id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace emberkv
