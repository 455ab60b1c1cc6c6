// Transfers through io_uring: any thread submits, one thread takes completions.
#include <liburing.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "store/system_io.h"

namespace emberkv {
namespace {

constexpr unsigned kRingEntries = 128;

class UringIo : public SystemIo {
 public:
  // `ring` is set up.
  explicit UringIo(const io_uring& ring) : ring_(ring), completions_([this] { TakeCompletions(); }) {}

  ~UringIo() override {
    Drain();
    Submit(nullptr);
    completions_.join();
    io_uring_queue_exit(&ring_);
  }

  void Start(Transfer transfer) override {
    NoteStarted();
    Submit(new Moving{std::move(transfer), 0});
  }

  std::string Description() const override { return "io_uring"; }

 private:
  struct Moving {
    Transfer transfer;
    size_t moved;
  };

  // Null: a no-operation that ends the completion thread.
  void Submit(Moving* moving) {
    std::unique_lock lock(submit_mutex_);
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    while (entry == nullptr) {  // only when an earlier submit was refused for a moment
      io_uring_submit(&ring_);
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      entry = io_uring_get_sqe(&ring_);
    }
    if (moving == nullptr) {
      io_uring_prep_nop(entry);
    } else {
      const Transfer& transfer = moving->transfer;
      uint8_t* data = transfer.data + moving->moved;
      const auto bytes = static_cast<unsigned>(transfer.bytes - moving->moved);
      const uint64_t offset = transfer.offset + moving->moved;
      if (transfer.kind == Transfer::Kind::kRead) {
        io_uring_prep_read(entry, transfer.fd, data, bytes, offset);
      } else {
        io_uring_prep_write(entry, transfer.fd, data, bytes, offset);
      }
    }
    io_uring_sqe_set_data(entry, moving);
    int submitted = io_uring_submit(&ring_);
    while (submitted == -EAGAIN || submitted == -EBUSY || submitted == -EINTR) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      submitted = io_uring_submit(&ring_);
    }
  }

  void TakeCompletions() {
    while (true) {
      io_uring_cqe* completion = nullptr;
      if (io_uring_wait_cqe(&ring_, &completion) != 0) continue;  // interrupted
      auto* moving = static_cast<Moving*>(io_uring_cqe_get_data(completion));
      const int result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (moving == nullptr) return;
      // Orders the submitter's writes before what follows: the kernel does, unseen by thread sanitizers.
      { const std::lock_guard lock(submit_mutex_); }
      if (result > 0) moving->moved += static_cast<size_t>(result);
      const bool is_short = result > 0 && moving->moved < moving->transfer.bytes;
      if (is_short || result == -EINTR || result == -EAGAIN) {
        Submit(moving);
        continue;
      }
      // A direct read that ended at the end of a file cannot go on from there: the place is not aligned.
      const bool is_at_end = result == -EINVAL && moving->moved > 0;
      moving->transfer.done(result < 0 && !is_at_end ? result : static_cast<int64_t>(moving->moved));
      delete moving;
      NoteDone();
    }
  }

  io_uring ring_;  // the submission side is guarded by submit_mutex_
  std::mutex submit_mutex_;
  std::thread completions_;
};

}  // namespace

std::unique_ptr<SegmentIo> MakeUringIo(std::string* reason) {
  io_uring ring;
  const int error = io_uring_queue_init(kRingEntries, &ring, 0);
  if (error != 0) {
    *reason = std::string("no io_uring: ") + std::strerror(-error);
    return nullptr;
  }
  return std::make_unique<UringIo>(ring);
}

}  // namespace emberkv
