#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

namespace emberkv {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int64_t n : {0, 1, 7, 1000}) {
      for (int64_t grain : {1, 3, 2000}) {
        std::vector<int> hits(static_cast<size_t>(n), 0);
        pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), n) << threads << " " << grain;
      }
    }
  }
}

TEST(ThreadPool, ThreadNumberIsUniqueWhileInUse) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes{0};
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(64, 1, [&](int64_t, int64_t, int thread) {
      if (inside[static_cast<size_t>(thread)].fetch_add(1) != 0) ++clashes;
      --inside[static_cast<size_t>(thread)];
    });
  }
  EXPECT_EQ(clashes.load(), 0);
}

// Some follow at once, some after the workers have gone to sleep.
TEST(ThreadPool, LoopsThatFollowCloselyOrLateAreAllCovered) {
  ThreadPool pool(3);
  std::vector<int> counts(7);
  for (int loop = 0; loop < 20'000; ++loop) {
    if (loop % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.ParallelFor(7, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(i)];
    });
  }
  for (const int count : counts) EXPECT_EQ(count, 20'000);
}

TEST(ThreadPool, WhatABodyThrowsReachesTheCallerAndTheNextLoopRuns) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 200; ++loop) {
    EXPECT_THROW(pool.ParallelFor(50, 1, [&](int64_t begin, int64_t, int) {
      if (begin == loop % 50) throw std::bad_alloc();
    }), std::bad_alloc);
    std::atomic<int> calls = 0;
    pool.ParallelFor(50, 1, [&](int64_t, int64_t, int) { ++calls; });
    EXPECT_EQ(calls, 50);
  }
}

}  // namespace
}  // namespace emberkv
