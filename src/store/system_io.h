// The parts of SegmentIo that are plain system calls however transfers are done.
#pragma once

#include <condition_variable>
#include <mutex>

#include "store/segment_io.h"

namespace emberkv {

class SystemIo : public SegmentIo {
 public:
  int Open(const std::string& path, int flags) override;
  int Allocate(int fd, uint64_t offset, uint64_t bytes) override;
  int Sync(int fd) override;
  int64_t ReadCached(int fd, uint64_t offset, std::span<const iovec> into) override;
  void Drain() override;

 protected:
  void NoteStarted();
  void NoteDone();

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t in_flight_ = 0;  // guarded by mutex_
};

// Null where the kernel refuses io_uring; `reason` says why.
std::unique_ptr<SegmentIo> MakeUringIo(std::string* reason);

}  // namespace emberkv
