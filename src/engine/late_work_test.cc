#include "engine/late_work.h"

#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <thread>

namespace emberkv {
namespace {

using std::chrono::steady_clock;

TEST(LateWork, EndsWithWhatItOwns) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  const auto deadline = steady_clock::now() + std::chrono::hours(1);
  EXPECT_TRUE(FinishBy(deadline, [owned = std::move(owned)] { *owned = 2; }));
  EXPECT_TRUE(watched.expired());
}

TEST(LateWork, GoesOnByItselfAndKeepsWhatItOwns) {
  auto opens = std::make_shared<std::latch>(1);
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  EXPECT_FALSE(FinishBy(steady_clock::now(), [opens, owned = std::move(owned)] { opens->wait(); }));
  EXPECT_FALSE(watched.expired());
  opens->count_down();
  while (!watched.expired()) std::this_thread::yield();
}

}  // namespace
}  // namespace emberkv
