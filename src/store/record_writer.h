// Writes records into segments: coalesced into pieces of a megabyte, several in flight, then synced.
//
// One thread at a time. Owns its buffers; segments and I/O outlive it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "store/record_format.h"
#include "store/segment_files.h"
#include "store/segment_io.h"

namespace emberkv {

// Called at named points of a change to the disk, so that tests can end the process there.
using Failpoint = std::function<void(std::string_view point)>;

struct RecordWrite {
  PageRecord page;
  RecordPlace place;
  Status status;  // out: OK when the record is durable

  uint64_t record_bytes() const { return RecordBytes(page.tokens.size(), page.payload.size()); }
};

class RecordWriter {
 public:
  RecordWriter(SegmentFiles* files, SegmentIo* io, uint64_t max_record_bytes, Failpoint failpoint);

  // `writes` are in the order of their places, those of a segment together. A failure in a segment fails
  // all its writes: after a failed sync nobody knows which of them are there. `cause` names the points.
  void Write(std::span<RecordWrite> writes, const std::string& cause);

 private:
  struct AlignedDelete {
    void operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t{kSlotBytes}); }
  };
  using Buffer = std::unique_ptr<uint8_t, AlignedDelete>;

  Status WriteSegment(std::span<RecordWrite> writes, const std::string& cause);
  // Encodes records that lie one after another, as many as fit; returns how many.
  size_t Fill(std::span<const RecordWrite> writes, uint8_t* buffer, size_t* bytes) const;
  uint8_t* TakeBuffer();
  int WaitForAll();  // 0 or the errno of one that failed

  // Constant after construction.
  SegmentFiles* const files_;
  SegmentIo* const io_;
  const size_t buffer_bytes_;
  const Failpoint failpoint_;
  std::vector<Buffer> buffers_;

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<uint8_t*> free_;  // guarded by mutex_
  int error_ = 0;               // guarded by mutex_
};

}  // namespace emberkv
