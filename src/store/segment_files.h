// The segment files of a store directory: making them, giving them space as they fill, opening them when needed, and pins that
// keep a segment from being written again while its records are read.
//
// Thread-safe. A segment's generation counts how often it was emptied; a pin is given for one generation
// only. The object owns all descriptors and closes them when it goes; pins are gone by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "store/segment_io.h"

namespace emberkv {

// An open file; closed when the last owner goes.
class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int fd() const { return fd_; }

 private:
  const int fd_;
};

class SegmentFiles {
 public:
  SegmentFiles(std::string directory, uint64_t segment_bytes, SegmentIo* io);
  ~SegmentFiles();
  SegmentFiles(const SegmentFiles&) = delete;
  SegmentFiles& operator=(const SegmentFiles&) = delete;

  // Numbers of the files that are there. Removes what a crash left half-made.
  Result<std::vector<uint32_t>> List() const;

  // Makes a file of full size that takes no space yet, durably: it is there afterwards or it is not.
  Status Create(uint32_t segment);
  // Takes note of a file that is there.
  void Adopt(uint32_t segment, uint64_t generation);
  // Deletes the file; readers that hold a pin may finish. Says whether it is gone.
  bool Remove(uint32_t segment);

  // From now on pins of older generations are refused.
  void SetGeneration(uint32_t segment, uint64_t generation);
  bool IsPinned(uint32_t segment) const;

  // Descriptors for reading that stay open until Unpin: through the page cache, and past it where the file
  // system allows that. kNotFound: another generation.
  struct Readers {
    int cached = -1;
    int direct = -1;
  };
  Result<Readers> Pin(uint32_t segment, uint64_t generation);
  void Unpin(uint32_t segment);

  // The segment for writing, past the page cache where the file system allows that. kUnavailable when the
  // file was deleted.
  Result<std::shared_ptr<const OpenFile>> Writer(uint32_t segment);

  // Takes space for what is to be written before `end`, and some more: an eighth of the segment at a time. For
  // the one thread that writes.
  Status TakeSpace(uint32_t segment, uint64_t end);

  // Whether writes go past the page cache, as far as is known.
  bool is_direct() const;

 private:
  struct File {
    uint64_t generation = 0;
    uint32_t pins = 0;
    Readers readers;
    uint64_t taken_bytes = 0;  // from the beginning, as far as is known
    bool is_removed = false;
  };

  std::string PathOf(uint32_t segment) const;
  Status MakeNewFile(const std::string& path);
  // The mutex is held.
  Status OpenReaders(uint32_t segment, File* file);
  void CloseReaders(File* file);
  void CloseIdle();
  Status SyncDirectory() const;

  // Constant after construction.
  const std::string directory_;
  const uint64_t segment_bytes_;
  SegmentIo* const io_;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::unordered_map<uint32_t, File> files_;
  size_t open_readers_ = 0;
  uint32_t writer_segment_ = 0;
  std::shared_ptr<const OpenFile> writer_;  // of that segment; kept, because it is wanted again and again
  bool is_direct_ = true;
};

}  // namespace emberkv
