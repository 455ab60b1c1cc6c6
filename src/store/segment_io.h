// What the local store asks of the system: files of fixed size, transfers that run by themselves, syncs.
//
// An interface so that tests can fail, delay and lose I/O. Results follow the system calls: a count or a
// descriptor, or a negated errno. Any thread may call; `done` runs on a thread of the implementation, once
// for each transfer, and must not block. Data and descriptor of a transfer stay valid until then.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace emberkv {

struct Transfer {
  enum class Kind { kRead, kWrite };

  Kind kind = Kind::kRead;
  int fd = -1;
  uint64_t offset = 0;
  uint8_t* data = nullptr;
  size_t bytes = 0;
  std::function<void(int64_t moved)> done;  // less than `bytes` at the file's end only
};

class SegmentIo {
 public:
  virtual ~SegmentIo() = default;

  virtual int Open(const std::string& path, int flags) = 0;
  virtual int Allocate(int fd, uint64_t offset, uint64_t bytes) = 0;  // takes the space for good
  virtual int Sync(int fd) = 0;
  virtual void Start(Transfer transfer) = 0;
  // Reads what memory holds already, without waiting for a device: all of it, or less than asked for.
  virtual int64_t ReadCached(int fd, uint64_t offset, std::span<const iovec> into) = 0;
  // Waits until no transfer is under way.
  virtual void Drain() = 0;
  // "io_uring", or why not.
  virtual std::string Description() const = 0;
};

// io_uring where the kernel grants it, threads with pread and pwrite otherwise.
std::unique_ptr<SegmentIo> MakeSegmentIo();
std::unique_ptr<SegmentIo> MakeThreadIo(const std::string& reason);

}  // namespace emberkv
