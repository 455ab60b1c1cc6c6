#include "store/directory_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace emberkv {
namespace {

std::string OwnerIn(int fd) {
  char text[32];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  std::string owner(text, n > 0 ? static_cast<size_t>(n) : 0);
  while (!owner.empty() && owner.back() == '\n') owner.pop_back();
  const bool is_number = owner.find_first_not_of("0123456789") == std::string::npos;
  return owner.empty() || !is_number ? "another process" : "process " + owner;
}

}  // namespace

DirectoryLock::DirectoryLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : path_(other.path_), fd_(std::exchange(other.fd_, -1)) {}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

Result<DirectoryLock> DirectoryLock::Take(const std::string& directory) {
  const std::string path = directory + "/" + kFileName;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Unavailable(fmt::format("{}: {}", path, std::strerror(errno)));
  DirectoryLock lock(path, fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Unavailable(fmt::format("{}: {}", path, std::strerror(errno)));
    return Unavailable(
        fmt::format("store directory {} is in use by {}: one process owns a store", directory, OwnerIn(fd)));
  }
  const std::string owner = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size())) {
    return Unavailable(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  return lock;
}

bool DirectoryLock::is_in_place() const {
  struct stat locked, named;
  return ::fstat(fd_, &locked) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
}

}  // namespace emberkv
