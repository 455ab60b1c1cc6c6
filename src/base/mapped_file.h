// A file mapped read-only, and positioned reads for tables that must not become resident.
//
// Both objects own their descriptor or mapping and are immutable after opening: any thread may read.
// The file must not shrink while mapped (a read past its new end raises SIGBUS, as for any mapping).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace emberkv {

class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// pread on an open file: what is read leaves no page in this process's resident memory.
class RandomAccessFile {
 public:
  static Result<RandomAccessFile> Open(const std::string& path);

  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  ~RandomAccessFile();

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Fills all of `out` from `offset`, or fails (kDataLoss when the file ends before).
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const;

 private:
  RandomAccessFile() = default;

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// The whole file as text; refuses files over `max_bytes`.
Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

}  // namespace emberkv
