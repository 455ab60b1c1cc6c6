// A file of lines, read from its beginning to its end in pieces: never held whole.
//
// Owns its descriptor; used by one thread. The file may be written meanwhile, or be a pipe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace emberkv {

class LineReader {
 public:
  static Result<LineReader> Open(const std::string& path);

  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  // The next line that is not empty, without its newline; the last one may have none. It is valid
  // until the next call. False at the end. kDataLoss: a line longer than kMaxLineBytes.
  Result<bool> Next(std::string_view* line);

  static constexpr size_t kMaxLineBytes = size_t{16} << 20;

  const std::string& path() const { return path_; }
  uint64_t line_number() const { return line_number_; }  // of the last line, from 1
  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t size_bytes() const { return size_bytes_; }  // when it was opened; 0: unknown
  // Tells whether two readers read one file, whatever it is called by now.
  std::pair<dev_t, ino_t> identity() const { return identity_; }

  // `status` with the path and number of the last line in front.
  Status AtLine(const Status& status) const;

 private:
  LineReader() = default;

  Result<bool> Fill();

  std::string path_;
  int fd_ = -1;
  std::pair<dev_t, ino_t> identity_;
  uint64_t size_bytes_ = 0;
  uint64_t line_number_ = 0;
  uint64_t bytes_read_ = 0;
  std::string buffer_;
  size_t begin_ = 0;    // of what is unread in buffer_
  size_t scanned_ = 0;  // no newline in [begin_, scanned_)
  bool is_at_end_ = false;
};

}  // namespace emberkv
