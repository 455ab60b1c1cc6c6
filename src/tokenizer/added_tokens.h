// Finds added tokens (special or not) in text: the longest one at the earliest place.
//
// Filled while a tokenizer loads, immutable afterwards: any thread may search.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace emberkv {

class AddedTokens {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = 0;
  };

  // `content` must not be empty.
  void Add(std::string_view content, int32_t id);

  bool empty() const { return nodes_.size() == 1; }

  // The first match that begins at or after `from`.
  std::optional<Match> Find(std::string_view text, size_t from) const;

 private:
  // A trie over bytes.
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;
    int32_t id = -1;  // of the token that ends here
  };

  const uint32_t* Child(uint32_t node, char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace emberkv
