// Writes records into segments: coalesced into pieces of a megabyte, several in flight, then synced.
//
// Start and Finish of a group may run on different threads, and groups may be finished while the next one
// is started. Owns its buffers; segments and I/O outlive it, and it outlives its groups.
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

  // Records on their way to the disk. What they point to stays valid until they are finished.
  class Group {
   private:
    friend class RecordWriter;
    // The records of one segment.
    struct Part {
      std::span<RecordWrite> writes;
      std::shared_ptr<const OpenFile> file;
      Status status;
      size_t in_flight = 0;  // pieces; guarded by the writer's mutex_
      int error = 0;         // of a piece that failed; likewise
    };
    std::vector<std::unique_ptr<Part>> parts_;
    std::string cause_;
  };

  // Starts writing. `writes` are in the order of their places, those of a segment together. `cause` names
  // the failpoints.
  std::unique_ptr<Group> Start(std::span<RecordWrite> writes, const std::string& cause);

  // Waits for groups of one cause and syncs each of their segments once; every write has its status then.
  // A failure in a segment fails all of the groups' writes to it: after a failed sync nobody knows which
  // of them are there.
  void Finish(std::span<const std::unique_ptr<Group>> groups);

 private:
  struct AlignedDelete {
    void operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t{kSlotBytes}); }
  };
  using Buffer = std::unique_ptr<uint8_t, AlignedDelete>;

  void StartPart(Group::Part* part);
  // Encodes records that lie one after another, as many as fit; returns how many.
  size_t Fill(std::span<const RecordWrite> writes, uint8_t* buffer, size_t* bytes) const;
  uint8_t* TakeBuffer(Group::Part* part);
  void PieceDone(Group::Part* part, uint8_t* buffer, int error);
  void WaitForPart(Group::Part* part);
  Status SyncParts(uint32_t segment, std::span<Group::Part* const> parts);

  // Constant after construction.
  SegmentFiles* const files_;
  SegmentIo* const io_;
  const size_t buffer_bytes_;
  const Failpoint failpoint_;
  std::vector<Buffer> buffers_;

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<uint8_t*> free_;  // guarded by mutex_
};

}  // namespace emberkv
