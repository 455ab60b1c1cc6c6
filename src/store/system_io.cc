#include "store/system_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

namespace emberkv {
namespace {

// Enough to keep a solid-state disk busy with transfers of 100 KiB and more.
constexpr size_t kNumThreads = 8;

class ThreadIo : public SystemIo {
 public:
  explicit ThreadIo(const std::string& reason) : reason_(reason) {
    for (size_t i = 0; i < kNumThreads; ++i) threads_.emplace_back([this] { Run(); });
  }

  ~ThreadIo() override {
    {
      std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void Start(Transfer transfer) override {
    NoteStarted();
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(transfer));
    }
    wake_.notify_one();
  }

  std::string Description() const override { return "threads (" + reason_ + ")"; }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Transfer transfer = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      transfer.done(Move(transfer));
      NoteDone();
      lock.lock();
    }
  }

  static int64_t Move(const Transfer& transfer) {
    size_t moved = 0;
    while (moved < transfer.bytes) {
      uint8_t* data = transfer.data + moved;
      const size_t bytes = transfer.bytes - moved;
      const auto offset = static_cast<off_t>(transfer.offset + moved);
      const ssize_t n = transfer.kind == Transfer::Kind::kRead
                            ? ::pread(transfer.fd, data, bytes, offset)
                            : ::pwrite(transfer.fd, data, bytes, offset);
      if (n < 0 && errno == EINTR) continue;
      // A direct read that ended at the end of a file cannot go on from there: the place is not aligned.
      if (n < 0 && errno == EINVAL && moved > 0) break;
      if (n < 0) return -errno;
      if (n == 0) break;
      moved += static_cast<size_t>(n);
    }
    return static_cast<int64_t>(moved);
  }

  const std::string reason_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Transfer> queue_;  // guarded by mutex_
  bool is_stopping_ = false;    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace

int SystemIo::Open(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  return fd < 0 ? -errno : fd;
}

int SystemIo::Allocate(int fd, uint64_t offset, uint64_t bytes) {
  return -::posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

int SystemIo::Sync(int fd) { return ::fdatasync(fd) == 0 ? 0 : -errno; }

int64_t SystemIo::ReadCached(int fd, uint64_t offset, std::span<const iovec> into) {
  const ssize_t n = ::preadv2(fd, into.data(), static_cast<int>(into.size()),
                              static_cast<off_t>(offset), RWF_NOWAIT);
  return n < 0 ? -errno : n;
}

void SystemIo::NoteStarted() {
  std::lock_guard lock(mutex_);
  ++in_flight_;
}

void SystemIo::NoteDone() {
  std::lock_guard lock(mutex_);
  if (--in_flight_ == 0) idle_.notify_all();
}

void SystemIo::Drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return in_flight_ == 0; });
}

std::unique_ptr<SegmentIo> MakeThreadIo(const std::string& reason) {
  return std::make_unique<ThreadIo>(reason);
}

std::unique_ptr<SegmentIo> MakeSegmentIo() {
  std::string reason;
  if (std::unique_ptr<SegmentIo> io = MakeUringIo(&reason)) return io;
  return MakeThreadIo(reason);
}

}  // namespace emberkv
