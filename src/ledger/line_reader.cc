#include "ledger/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace emberkv {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;

Status SystemError(const char* what, const std::string& path, int error) {
  const std::string message = fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? NotFound(message) : Unavailable(message);
}

}  // namespace

Result<LineReader> LineReader::Open(const std::string& path) {
  LineReader reader;
  reader.path_ = path;
  reader.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (reader.fd_ < 0) return SystemError("open", path, errno);
  struct stat file {};
  if (::fstat(reader.fd_, &file) != 0) return SystemError("stat", path, errno);
  if (S_ISDIR(file.st_mode)) return InvalidArgument(fmt::format("{} is a folder", path));
  reader.identity_ = {file.st_dev, file.st_ino};
  reader.size_bytes_ = static_cast<uint64_t>(file.st_size);
  return reader;
}

LineReader::LineReader(LineReader&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      identity_(other.identity_),
      size_bytes_(other.size_bytes_),
      line_number_(other.line_number_),
      bytes_read_(other.bytes_read_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      scanned_(other.scanned_),
      is_at_end_(other.is_at_end_) {}

LineReader::~LineReader() {
  if (fd_ >= 0) ::close(fd_);
}

Result<bool> LineReader::Next(std::string_view* line) {
  for (;;) {
    const size_t newline = buffer_.find('\n', scanned_);
    const bool is_whole = newline != buffer_.npos;
    const size_t end = is_whole ? newline : buffer_.size();
    if (end - begin_ > kMaxLineBytes) {
      ++line_number_;
      return AtLine(DataLoss(fmt::format("a line of more than {} bytes", kMaxLineBytes)));
    }
    if (is_whole || is_at_end_) {
      *line = std::string_view(buffer_).substr(begin_, end - begin_);
      begin_ = scanned_ = is_whole ? end + 1 : end;
      if (is_whole || !line->empty()) ++line_number_;
      if (!line->empty()) return true;
      if (!is_whole) return false;
      continue;
    }
    scanned_ = end;
    EMBERKV_ASSIGN_OR_RETURN(const bool has_more, Fill());
    is_at_end_ = !has_more;
  }
}

Result<bool> LineReader::Fill() {
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  const size_t filled = buffer_.size();
  buffer_.resize(filled + kReadBytes);
  ssize_t bytes = 0;
  do {
    bytes = ::read(fd_, buffer_.data() + filled, kReadBytes);
  } while (bytes < 0 && errno == EINTR);
  const int error = errno;
  buffer_.resize(filled + static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  if (bytes < 0) return SystemError("read", path_, error);
  bytes_read_ += static_cast<uint64_t>(bytes);
  return bytes > 0;
}

Status LineReader::AtLine(const Status& status) const {
  return status.WithContext(fmt::format("{}:{}", path_, line_number_));
}

}  // namespace emberkv
