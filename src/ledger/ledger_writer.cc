#include "ledger/ledger_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace emberkv {
namespace {

Status SystemError(const char* what, const std::string& path, int error) {
  return Unavailable(fmt::format("cannot {} {}: {}", what, path, std::strerror(error)));
}

// Whether the last byte of a file of `bytes` is no newline. A file that cannot be read says so too:
// an empty line is harmless.
bool EndsWithinLine(int fd, uint64_t bytes) {
  char last = 0;
  if (bytes == 0) return false;
  return ::pread(fd, &last, 1, static_cast<off_t>(bytes - 1)) != 1 || last != '\n';
}

}  // namespace

std::string RotatedPath(const std::string& path, int number) {
  const std::filesystem::path whole(path);
  const std::string name =
      fmt::format("{}.{}{}", whole.stem().string(), number, whole.extension().string());
  return (whole.parent_path() / name).string();
}

LedgerWriter::LedgerWriter(std::string path, const LedgerWriterOptions& options)
    : path_(std::move(path)), options_(options) {}

Result<std::unique_ptr<LedgerWriter>> LedgerWriter::Open(const std::string& path,
                                                         const LedgerWriterOptions& options) {
  if (options.keep_files < 1) {
    return InvalidArgument(fmt::format("{}: {} rotated files are to be kept; allowed: at least 1",
                                       path, options.keep_files));
  }
  std::unique_ptr<LedgerWriter> writer(new LedgerWriter(path, options));
  EMBERKV_RETURN_IF_ERROR(writer->OpenFile());
  return writer;
}

LedgerWriter::~LedgerWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Status LedgerWriter::OpenFile() {
  const int fd = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0) return SystemError("open", path_, errno);
  struct stat file {};
  if (::fstat(fd, &file) != 0) {
    const int error = errno;
    ::close(fd);
    return SystemError("stat", path_, error);
  }
  fd_ = fd;
  file_bytes_ = static_cast<uint64_t>(file.st_size);
  ends_within_line_ = EndsWithinLine(fd, file_bytes_);
  return Status::Ok();
}

// From the oldest to the newest, so that no file is written over but the one that is too old. Stops
// at the first that cannot be moved: the file that is written goes on growing.
Status LedgerWriter::Rotate() {
  for (int number = options_.keep_files - 1; number >= 0; --number) {
    const std::string from = number == 0 ? path_ : RotatedPath(path_, number);
    if (std::rename(from.c_str(), RotatedPath(path_, number + 1).c_str()) != 0 && errno != ENOENT) {
      return SystemError("rotate", from, errno);
    }
  }
  ::close(fd_);
  fd_ = -1;
  ++stats_.rotations;
  return OpenFile();
}

void LedgerWriter::Append(std::string_view line) {
  assert(line.find('\n') == line.npos);
  const std::lock_guard lock(mutex_);
  Status status;
  if (fd_ < 0) {
    status = OpenFile();
  } else if (file_bytes_ > 0 && file_bytes_ + line.size() + 1 > options_.max_bytes) {
    status = Rotate();
  }
  if (!status.ok()) stats_.last_error = status.message();
  if (fd_ < 0) {
    ++stats_.lines_lost;
    return;
  }
  buffer_.clear();
  if (ends_within_line_) buffer_ += '\n';
  buffer_ += line;
  buffer_ += '\n';
  ssize_t written = 0;
  do {
    written = ::write(fd_, buffer_.data(), buffer_.size());
  } while (written < 0 && errno == EINTR);
  const int error = written < 0 ? errno : ENOSPC;  // a short write: the next one would say why
  if (written > 0) {
    file_bytes_ += static_cast<uint64_t>(written);
    stats_.bytes_written += static_cast<uint64_t>(written);
    ends_within_line_ = buffer_[static_cast<size_t>(written) - 1] != '\n';
  }
  if (written == static_cast<ssize_t>(buffer_.size())) {
    ++stats_.lines_written;
  } else {
    ++stats_.lines_lost;
    stats_.last_error = SystemError("write", path_, error).message();
  }
}

LedgerWriterStats LedgerWriter::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace emberkv
