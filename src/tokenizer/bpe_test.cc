#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace emberkv {
namespace {

std::array<int32_t, 256> ByteIds() {
  std::array<int32_t, 256> ids;
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<int32_t> Encoded(const Bpe& bpe, std::string_view word) {
  std::vector<int32_t> ids;
  bpe.Encode(word, &ids);
  return ids;
}

// The definition: join the first pair in the list of merges, at its leftmost place, until none is
// left.
std::vector<int32_t> Defined(const std::vector<BpeMerge>& merges, std::string_view word) {
  std::vector<int32_t> ids;
  for (const char c : word) ids.push_back(static_cast<uint8_t>(c));
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const BpeMerge& merge : merges) {
      const std::array<int32_t, 2> pair = {merge.left, merge.right};
      const auto place = std::search(ids.begin(), ids.end(), pair.begin(), pair.end());
      if (place == ids.end()) continue;
      *place = merge.merged;
      ids.erase(place + 1);
      is_changed = true;
      break;
    }
  }
  return ids;
}

// Merges over the letters a-d, each joining two tokens that exist by then; equal texts share an id.
std::vector<BpeMerge> RandomMerges(std::mt19937* rng, size_t count) {
  std::vector<std::string> texts = {"a", "b", "c", "d"};
  std::vector<int32_t> ids = {'a', 'b', 'c', 'd'};
  std::vector<BpeMerge> merges;
  while (merges.size() < count) {
    const size_t left = (*rng)() % texts.size(), right = (*rng)() % texts.size();
    const std::string text = texts[left] + texts[right];
    const bool is_known = std::any_of(merges.begin(), merges.end(), [&](const BpeMerge& m) {
      return m.left == ids[left] && m.right == ids[right];
    });
    if (text.size() > 12 || is_known) continue;
    const auto same = std::find(texts.begin(), texts.end(), text);
    if (same == texts.end()) {
      texts.push_back(text);
      ids.push_back(256 + static_cast<int32_t>(texts.size()));
    }
    const auto place = std::find(texts.begin(), texts.end(), text) - texts.begin();
    merges.push_back({ids[left], ids[right], ids[static_cast<size_t>(place)]});
  }
  std::shuffle(merges.begin(), merges.end(), *rng);
  return merges;
}

TEST(Bpe, FollowsTheDefinitionOnShortAndLongWords) {
  std::mt19937 rng(7);
  for (int round = 0; round < 60; ++round) {
    const std::vector<BpeMerge> merges = RandomMerges(&rng, 30);
    const Bpe bpe(ByteIds(), merges);
    for (const size_t length : {1u, 2u, 3u, 7u, 23u, 24u, 25u, 26u, 60u, 200u}) {
      std::string word;
      const unsigned letters = 1 + rng() % 4;
      for (size_t i = 0; i < length; ++i) word.push_back(static_cast<char>('a' + rng() % letters));
      ASSERT_EQ(Encoded(bpe, word), Defined(merges, word)) << word;
    }
  }
}

TEST(Bpe, EncodesAnEmptyWordAsNothing) {
  EXPECT_TRUE(Encoded(Bpe(ByteIds(), {{'a', 'b', 256}}), "").empty());
}

TEST(Bpe, TakesWholeWordsFirstWhenTheyAreSet) {
  Bpe bpe(ByteIds(), {{'a', 'b', 256}});
  bpe.SetWholeWords({{"xyz", 300}});
  EXPECT_EQ(Encoded(bpe, "xyz"), std::vector<int32_t>{300});
  EXPECT_EQ(Encoded(bpe, "abxyz"), (std::vector<int32_t>{256, 'x', 'y', 'z'}));
}

// A method that scans the word for each merge needs 10^12 steps here, hours instead of a second.
TEST(Bpe, HandlesAMegabyteOfOneLetter) {
  std::vector<BpeMerge> merges = {{'a', 'a', 256}, {256, 256, 257}, {257, 257, 258}};
  const std::vector<int32_t> ids = Encoded(Bpe(ByteIds(), merges), std::string(1 << 20, 'a'));
  EXPECT_EQ(ids, std::vector<int32_t>((1 << 20) / 8, 258));
}

}  // namespace
}  // namespace emberkv
