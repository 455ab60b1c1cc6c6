// A fixed set of worker threads for loops whose iterations are independent.
//
// ParallelFor is called from one thread at a time (the model thread); the caller works too. Iterations
// may run in any order on any thread, so a loop body must write only what belongs to its index:
// results then do not depend on the number of threads. Workers sleep while idle: after a loop they look for
// the next one for 50 us at most, because waking a thread costs as long as many a loop. A worker that comes
// when all of a loop is given out is not waited for, so that a core taken by others delays nobody.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace emberkv {

class ThreadPool {
 public:
  // `num_threads` counts the caller: 1 runs everything in place. Must be at least 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end, thread) for half-open ranges that cover [0, n) once, each at most `grain`
  // long; `thread` is below num_threads() and no two calls with equal `thread` overlap, so it can
  // index per-thread scratch. n <= grain runs in place as one call. What a call throws, the first if there
  // are several, is thrown here when no call runs any more; the ranges after it may not have been run.
  using Body = std::function<void(int64_t begin, int64_t end, int thread)>;
  void ParallelFor(int64_t n, int64_t grain, const Body& body);

 private:
  struct Loop {
    int64_t n = 0;
    int64_t grain = 1;
    const Body* body = nullptr;
  };

  void WorkerMain(int thread);
  void RunShare(const Loop& loop, int thread);

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable work_done_;
  Loop loop_;             // guarded by mutex_
  bool is_open_ = false;  // guarded by mutex_: workers may still begin with loop_
  // Written under mutex_; read without it only to look whether waiting is over.
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> busy_workers_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> next_{0};
  std::exception_ptr failure_;  // guarded by mutex_

  std::vector<std::thread> workers_;  // last: started after the rest exists
};

}  // namespace emberkv
