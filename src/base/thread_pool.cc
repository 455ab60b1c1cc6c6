#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace emberkv {
namespace {

constexpr std::chrono::microseconds kLookTime{50};

// Looks for the end of waiting a while before its caller goes to sleep over it, giving way to whoever wants
// the core meanwhile.
template <class IsOver>
void LookFor(const IsOver& is_over) {
  const auto end = std::chrono::steady_clock::now() + kLookTime;
  while (!is_over() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { WorkerMain(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunShare(const Loop& loop, int thread) {
  for (;;) {
    const int64_t begin = next_.fetch_add(loop.grain, std::memory_order_relaxed);
    if (begin >= loop.n) return;
    try {
      (*loop.body)(begin, std::min(loop.n, begin + loop.grain), thread);
    } catch (...) {
      next_.store(loop.n, std::memory_order_relaxed);  // the rest of the loop is not begun
      std::lock_guard lock(mutex_);
      if (failure_ == nullptr) failure_ = std::current_exception();
      return;
    }
  }
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  if (workers_.empty() || n <= grain) {
    body(0, n, 0);
    return;
  }
  const Loop loop{n, grain, &body};
  {
    std::lock_guard lock(mutex_);
    loop_ = loop;
    is_open_ = true;
    next_.store(0, std::memory_order_relaxed);
    ++generation_;
  }
  work_ready_.notify_all();
  RunShare(loop, 0);
  {
    std::lock_guard lock(mutex_);
    is_open_ = false;
  }
  LookFor([this] { return busy_workers_ == 0; });
  std::unique_lock lock(mutex_);
  work_done_.wait(lock, [this] { return busy_workers_ == 0; });
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::WorkerMain(int thread) {
  uint64_t seen = 0;
  const auto has_news = [&] { return stopping_ || generation_ != seen; };
  for (;;) {
    Loop loop;
    LookFor(has_news);
    {
      std::unique_lock lock(mutex_);
      work_ready_.wait(lock, has_news);
      if (stopping_) return;
      seen = generation_;
      if (!is_open_) continue;
      loop = loop_;
      ++busy_workers_;
    }
    RunShare(loop, thread);
    std::lock_guard lock(mutex_);
    if (--busy_workers_ == 0) work_done_.notify_one();
  }
}

}  // namespace emberkv
