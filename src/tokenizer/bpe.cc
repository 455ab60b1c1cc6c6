#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>

namespace emberkv {
namespace {

// Up to here a scan for the best pair beats a heap.
constexpr size_t kShortWord = 24;

uint64_t PairKey(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

// A token inside a word, linked to its neighbours; -1 ends the list.
struct Symbol {
  int32_t id = 0;
  int32_t previous = 0;
  int32_t next = 0;
  bool is_merged_away = false;
};

struct Candidate {
  uint32_t rank = 0;
  int32_t left = 0;  // index of the left symbol

  // std heaps keep the largest on top; the lowest rank, then the leftmost, must come first.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

MergeRanks::MergeRanks(size_t num_merges) : slots_(std::bit_ceil(2 * num_merges + 2)) {}

size_t MergeRanks::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = (pair * 0x9E3779B97F4A7C15u >> 20) & mask;
  while (slots_[slot].rank != kNone && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

void MergeRanks::Set(int32_t left, int32_t right, uint32_t rank) {
  const uint64_t pair = PairKey(left, right);
  slots_[SlotOf(pair)] = {pair, rank};
}

uint32_t MergeRanks::Find(int32_t left, int32_t right) const {
  return slots_[SlotOf(PairKey(left, right))].rank;
}

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges)
    : byte_ids_(byte_ids), ranks_(merges.size()) {
  merged_.reserve(merges.size());
  for (const BpeMerge& merge : merges) {
    ranks_.Set(merge.left, merge.right, static_cast<uint32_t>(merged_.size()));
    merged_.push_back(merge.merged);
  }
}

void Bpe::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) {
      ids->push_back(whole->second);
      return;
    }
  }
  if (word.size() <= kShortWord) {
    EncodeShort(word, ids);
  } else {
    EncodeLong(word, ids);
  }
}

void Bpe::EncodeShort(std::string_view word, std::vector<int32_t>* ids) const {
  std::array<int32_t, kShortWord> id;
  std::array<uint32_t, kShortWord> rank;  // of the pair (i, i + 1)
  size_t n = word.size();
  for (size_t i = 0; i < n; ++i) id[i] = byte_ids_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < n; ++i) rank[i] = ranks_.Find(id[i], id[i + 1]);
  while (n > 1) {
    const size_t best =
        static_cast<size_t>(std::min_element(rank.begin(), rank.begin() + n - 1) - rank.begin());
    if (rank[best] == MergeRanks::kNone) break;
    id[best] = merged_[rank[best]];
    std::copy(id.begin() + best + 2, id.begin() + n, id.begin() + best + 1);
    if (best + 2 < n) {
      std::copy(rank.begin() + best + 2, rank.begin() + n - 1, rank.begin() + best + 1);
    }
    --n;
    if (best > 0) rank[best - 1] = ranks_.Find(id[best - 1], id[best]);
    if (best + 1 < n) rank[best] = ranks_.Find(id[best], id[best + 1]);
  }
  ids->insert(ids->end(), id.begin(), id.begin() + n);
}

void Bpe::EncodeLong(std::string_view word, std::vector<int32_t>* ids) const {
  const auto n = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  std::vector<Candidate> heap;
  heap.reserve(word.size());
  for (int32_t i = 0; i < n; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1 < n ? i + 1 : -1, false};
  }
  for (int32_t i = 0; i + 1 < n; ++i) {
    const uint32_t rank = ranks_.Find(symbols[i].id, symbols[i + 1].id);
    if (rank != MergeRanks::kNone) heap.push_back({rank, i});
  }
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const uint32_t rank = ranks_.Find(symbols[left].id, symbols[right].id);
    if (rank == MergeRanks::kNone) return;
    heap.push_back({rank, left});
    std::push_heap(heap.begin(), heap.end());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.left];
    if (left.is_merged_away || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    // A candidate is stale once either of its symbols has grown.
    if (ranks_.Find(left.id, right.id) != top.rank) continue;
    left.id = merged_[top.rank];
    right.is_merged_away = true;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = top.left;
    push(left.previous, top.left);
    push(top.left, left.next);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace emberkv
