#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace emberkv {
namespace {

Status SystemError(const std::string& what, const std::string& path, int error) {
  const std::string message = fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? NotFound(message) : Unavailable(message);
}

// Opens a regular file for reading; returns its descriptor and size.
Result<std::pair<int, uint64_t>> OpenRegular(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError("open", path, errno);
  struct stat st {};
  if (::fstat(fd, &st) != 0) {
    const int error = errno;
    ::close(fd);
    return SystemError("stat", path, error);
  }
  if (!S_ISREG(st.st_mode)) {
    ::close(fd);
    return InvalidArgument(fmt::format("{} is not a regular file", path));
  }
  return std::pair<int, uint64_t>(fd, static_cast<uint64_t>(st.st_size));
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(const auto opened, OpenRegular(path));
  const auto [fd, size] = opened;
  MappedFile file;
  file.path_ = path;
  file.size_ = size;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    if (data == MAP_FAILED) return SystemError("map", path, error);
    file.data_ = static_cast<const uint8_t*>(data);
  } else {
    ::close(fd);
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

Result<RandomAccessFile> RandomAccessFile::Open(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(const auto opened, OpenRegular(path));
  RandomAccessFile file;
  file.path_ = path;
  file.fd_ = opened.first;
  file.size_ = opened.second;
  return file;
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept { *this = std::move(other); }

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status RandomAccessFile::ReadAt(uint64_t offset, std::span<uint8_t> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("read", path_, errno);
    if (n == 0) {
      return DataLoss(fmt::format("{} ends at byte {}, {} bytes at {} were wanted", path_,
                                  offset + done, out.size(), offset));
    }
    done += static_cast<size_t>(n);
  }
  return Status::Ok();
}

Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  EMBERKV_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(path));
  if (file.size() > max_bytes) {
    return InvalidArgument(
        fmt::format("{} has {} bytes; at most {} are read", path, file.size(), max_bytes));
  }
  std::string text(file.size(), '\0');
  EMBERKV_RETURN_IF_ERROR(
      file.ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

}  // namespace emberkv
