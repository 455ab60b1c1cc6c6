#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace emberkv {
namespace {

class PrefixIndexTest : public ::testing::Test {
 protected:
  static BlockHash Name(const std::string& name) { return Sha256(name); }

  // Inserts `name` and returns the address of its page, which only the index then pins.
  const uint8_t* Insert(const std::string& name, const std::string& parent) {
    PageHandle page = std::move(pool_->Acquire()).value();
    const uint8_t* bytes = page.bytes();
    EXPECT_TRUE(index_.Insert(Name(name), Name(parent), std::move(page)));
    return bytes;
  }

  // The name of the page that is evicted; "" when none is.
  std::string Evicted(const std::vector<std::string>& names) {
    std::set<std::string> before;
    for (const auto& name : names) {
      if (index_.Contains(Name(name))) before.insert(name);
    }
    if (!index_.Evict()) return "";
    for (const auto& name : before) {
      if (!index_.Contains(Name(name))) return name;
    }
    return "something else";
  }

  std::unique_ptr<PagePool> pool_ = std::move(PagePool::Make(64, 64 * 64)).value();
  PrefixIndex index_;
};

TEST_F(PrefixIndexTest, FindsThePageOfAHashAndNoOther) {
  const uint8_t* bytes = Insert("a", "root");
  EXPECT_EQ(index_.Find(Name("a")).bytes(), bytes);
  EXPECT_FALSE(index_.Find(Name("root")));
  EXPECT_TRUE(index_.Contains(Name("a")));
  EXPECT_EQ(index_.size(), 1u);
}

TEST_F(PrefixIndexTest, KeepsTheFirstPageOfAHash) {
  const uint8_t* bytes = Insert("a", "root");
  EXPECT_FALSE(index_.Insert(Name("a"), Name("root"), std::move(pool_->Acquire()).value()));
  EXPECT_EQ(index_.Find(Name("a")).bytes(), bytes);
  EXPECT_EQ(pool_->stats().pages_in_use, 1u);
}

TEST_F(PrefixIndexTest, EvictsUnpinnedLeavesFirstAndTheOldestOfThem) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  Insert("a", "root");
  Insert("b", "a");
  Insert("c", "b");
  Insert("d", "a");
  EXPECT_EQ(Evicted(names), "c");
  EXPECT_EQ(Evicted(names), "b") << "a leaf now, and used before d";
  EXPECT_EQ(Evicted(names), "d");
  EXPECT_EQ(Evicted(names), "a");
}

TEST_F(PrefixIndexTest, AUseMakesALeafTheNewest) {
  const std::vector<std::string> names = {"a", "b", "c"};
  Insert("a", "root");
  Insert("b", "root");
  Insert("c", "root");
  EXPECT_TRUE(index_.Find(Name("a")));
  EXPECT_EQ(Evicted(names), "b");
  EXPECT_EQ(Evicted(names), "c");
  EXPECT_EQ(Evicted(names), "a");
  EXPECT_EQ(Evicted(names), "");
  EXPECT_EQ(pool_->stats().pages_in_use, 0u);
}

TEST_F(PrefixIndexTest, NeverEvictsAPinnedPage) {
  const std::vector<std::string> names = {"a", "b"};
  Insert("a", "root");
  Insert("b", "root");
  {
    const PageHandle pin = index_.Find(Name("a"));
    index_.Find(Name("b"));
    EXPECT_EQ(index_.num_pinned(), 1u);
    EXPECT_EQ(Evicted(names), "b");
    EXPECT_EQ(Evicted(names), "");
    EXPECT_EQ(pin.bytes(), index_.Find(Name("a")).bytes());
  }
  EXPECT_EQ(index_.num_pinned(), 0u);
  EXPECT_EQ(Evicted(names), "a");
}

TEST_F(PrefixIndexTest, APinnedLeafHoldsItselfOnly) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  Insert("a", "root");
  Insert("b", "a");
  Insert("c", "b");
  Insert("d", "c");
  PageHandle leaf = index_.Find(Name("d"));
  EXPECT_EQ(Evicted(names), "c") << "the deepest that nobody pins";
  EXPECT_EQ(Evicted(names), "b");
  EXPECT_EQ(Evicted(names), "a");
  EXPECT_EQ(Evicted(names), "");
  leaf = PageHandle();
  EXPECT_EQ(Evicted(names), "d");
}

TEST_F(PrefixIndexTest, APageThatComesBackBeforeItsChildrenIsNoLeaf) {
  const std::vector<std::string> names = {"a", "b", "c"};
  Insert("b", "a");
  Insert("c", "root");
  Insert("a", "root");
  index_.Find(Name("b"));
  index_.Find(Name("c"));
  EXPECT_EQ(Evicted(names), "b") << "a is older, and has a child";
  EXPECT_EQ(Evicted(names), "a");
}

// Against a plain list: evictions take the oldest unpinned leaf whenever there is one.
TEST_F(PrefixIndexTest, EvictsAsAListWould) {
  struct Known {
    int parent = -1;
    int last_use = 0;
    PageHandle pin = {};
  };
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    PrefixIndex index;
    std::map<int, Known> model;
    int uses = 0;
    const auto hash = [&](int id) { return Name(std::to_string(id)); };
    for (int step = 0; step < 300; ++step) {
      const int id = static_cast<int>(random() % 40);
      const auto at = model.find(id);
      switch (random() % 4) {
        case 0:
        case 1:
          if (at == model.end()) {
            const int parent = id / 3 - 1;
            ASSERT_TRUE(index.Insert(hash(id), hash(parent), std::move(pool_->Acquire()).value()));
            model[id] = {parent, ++uses};
          } else {
            ASSERT_TRUE(index.Find(hash(id)));
            at->second.last_use = ++uses;
          }
          break;
        case 2:
          if (at == model.end()) break;
          if (at->second.pin) {
            at->second.pin = PageHandle();
          } else {
            at->second.pin = index.Find(hash(id));
            at->second.last_use = ++uses;
          }
          break;
        default: {
          int oldest_leaf = -100;
          bool has_unpinned = false;
          for (const auto& [i, known] : model) {
            has_unpinned = has_unpinned || !known.pin;
            bool is_leaf = !known.pin;
            for (const auto& [j, other] : model) is_leaf = is_leaf && other.parent != i;
            if (!is_leaf) continue;
            if (oldest_leaf == -100 || known.last_use < model[oldest_leaf].last_use) {
              oldest_leaf = i;
            }
          }
          ASSERT_EQ(static_cast<bool>(index.Evict()), has_unpinned);
          int gone = -100;
          for (const auto& [i, known] : model) {
            if (!index.Contains(hash(i))) gone = i;
          }
          if (oldest_leaf != -100) {
            ASSERT_EQ(gone, oldest_leaf);
          }
          if (has_unpinned) {
            ASSERT_FALSE(model[gone].pin);
            model.erase(gone);
          }
        }
      }
      ASSERT_EQ(index.size(), model.size());
    }
  }
  EXPECT_EQ(pool_->stats().pages_in_use, 0u);
}

}  // namespace
}  // namespace emberkv
