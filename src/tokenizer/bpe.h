// Byte-pair merging: the bytes of one word become token ids.
//
// Starting from one token per byte, the adjacent pair whose merge stands first in the list is
// joined, the leftmost first among equals, until no pair has a merge. Filled while a tokenizer
// loads, immutable afterwards: any thread may encode. A word of n bytes takes O(n log n), whatever
// it repeats.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace emberkv {

// From a pair of token ids to its place in the list of merges.
class MergeRanks {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit MergeRanks(size_t num_merges);

  // At most num_merges different pairs; a pair given twice takes the later rank.
  void Set(int32_t left, int32_t right, uint32_t rank);
  uint32_t Find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = 0;
    uint32_t rank = kNone;  // kNone: the slot is empty
  };

  size_t SlotOf(uint64_t pair) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
};

struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

class Bpe {
 public:
  Bpe(const std::array<int32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges);

  // Words that are tokens become that token without any merging (`ignore_merges`).
  void SetWholeWords(std::unordered_map<std::string, int32_t> words) {
    whole_words_ = std::move(words);
  }

  // Appends the ids of `word`, shorter than 2^31 bytes.
  void Encode(std::string_view word, std::vector<int32_t>* ids) const;

 private:
  void EncodeShort(std::string_view word, std::vector<int32_t>* ids) const;
  void EncodeLong(std::string_view word, std::vector<int32_t>* ids) const;

  std::array<int32_t, 256> byte_ids_;
  MergeRanks ranks_;
  std::vector<int32_t> merged_;  // by rank
  std::unordered_map<std::string, int32_t> whole_words_;
};

}  // namespace emberkv
