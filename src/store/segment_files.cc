#include "store/segment_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace emberkv {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "segment-";
constexpr std::string_view kHalfMade = ".new";

// Segments open for reading, with two descriptors each: far below the usual limit of 1024.
constexpr size_t kMaxOpenReaders = 128;

// A segment takes its space in so many steps.
constexpr uint64_t kSpaceSteps = 8;

Status Failed(const std::string& what, int error) {
  const std::string message = fmt::format("{}: {}", what, std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? ResourceExhausted(message) : Unavailable(message);
}

}  // namespace

OpenFile::~OpenFile() { ::close(fd_); }

SegmentFiles::SegmentFiles(std::string directory, uint64_t segment_bytes, SegmentIo* io)
    : directory_(std::move(directory)), segment_bytes_(segment_bytes), io_(io) {}

SegmentFiles::~SegmentFiles() {
  for (auto& [segment, file] : files_) CloseReaders(&file);
}

std::string SegmentFiles::PathOf(uint32_t segment) const {
  return fmt::format("{}/{}{:08}", directory_, kPrefix, segment);
}

Result<std::vector<uint32_t>> SegmentFiles::List() const {
  std::vector<uint32_t> segments;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    if (name.ends_with(kHalfMade)) {
      ::unlink(it->path().c_str());
      continue;
    }
    const std::string digits = name.substr(kPrefix.size());
    if (digits.size() == 8 && digits.find_first_not_of("0123456789") == std::string::npos) {
      segments.push_back(static_cast<uint32_t>(std::stoul(digits)));
    }
  }
  if (error) return Unavailable(directory_ + ": " + error.message());
  return segments;
}

Status SegmentFiles::MakeNewFile(const std::string& path) {
  const int fd = io_->Open(path, O_RDWR | O_CREAT | O_TRUNC);
  if (fd < 0) return Failed(path, -fd);
  int error = ::ftruncate(fd, static_cast<off_t>(segment_bytes_)) == 0 ? 0 : errno;
  if (error == 0) error = -io_->Sync(fd);
  ::close(fd);
  return error == 0 ? Status::Ok() : Failed(path, error);
}

// Making a file take space waits for what is being written to it, so it is done seldom, and not at all for a
// file that has all of its space.
Status SegmentFiles::TakeSpace(uint32_t segment, uint64_t end) {
  uint64_t taken = 0;
  {
    const std::lock_guard lock(mutex_);
    taken = files_[segment].taken_bytes;
  }
  if (end <= taken) return Status::Ok();
  const std::string path = PathOf(segment);
  const int fd = io_->Open(path, O_WRONLY);
  if (fd < 0) return Failed(path, -fd);
  struct stat status;
  const bool has_all = ::fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_blocks) * 512 >= segment_bytes_;
  const uint64_t step = std::max<uint64_t>(segment_bytes_ / kSpaceSteps, 1);
  const uint64_t wanted = has_all ? segment_bytes_ : std::min(segment_bytes_, (end + step - 1) / step * step);
  const int error = has_all ? 0 : -io_->Allocate(fd, taken, wanted - taken);
  ::close(fd);
  if (error != 0) return Failed(path, error);
  const std::lock_guard lock(mutex_);
  files_[segment].taken_bytes = wanted;
  return Status::Ok();
}

Status SegmentFiles::SyncDirectory() const {
  const int fd = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed(directory_, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error == 0 ? Status::Ok() : Failed(directory_, error);
}

Status SegmentFiles::Create(uint32_t segment) {
  const std::string path = PathOf(segment);
  const std::string half_made = path + std::string(kHalfMade);
  Status status = MakeNewFile(half_made);
  if (status.ok() && ::rename(half_made.c_str(), path.c_str()) != 0) status = Failed(path, errno);
  if (status.ok()) status = SyncDirectory();
  if (!status.ok()) {
    ::unlink(half_made.c_str());
    ::unlink(path.c_str());
    return status;
  }
  Adopt(segment, 1);
  return Status::Ok();
}

void SegmentFiles::Adopt(uint32_t segment, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  files_[segment].generation = generation;
}

bool SegmentFiles::Remove(uint32_t segment) {
  const std::string path = PathOf(segment);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return false;
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(segment);
  if (found == files_.end()) return true;
  if (writer_segment_ == segment) writer_.reset();
  if (found->second.pins > 0) {
    found->second.is_removed = true;  // the last Unpin forgets it
    return true;
  }
  CloseReaders(&found->second);
  files_.erase(found);
  return true;
}

void SegmentFiles::SetGeneration(uint32_t segment, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  files_[segment].generation = generation;
}

bool SegmentFiles::IsPinned(uint32_t segment) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(segment);
  return found != files_.end() && found->second.pins > 0;
}

Result<SegmentFiles::Readers> SegmentFiles::Pin(uint32_t segment, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(segment);
  if (found == files_.end() || found->second.generation != generation || found->second.is_removed) {
    return NotFound(fmt::format("segment {} generation {}", segment, generation));
  }
  File& file = found->second;
  if (file.readers.cached < 0) EMBERKV_RETURN_IF_ERROR(OpenReaders(segment, &file));
  ++file.pins;
  return file.readers;
}

Status SegmentFiles::OpenReaders(uint32_t segment, File* file) {
  if (open_readers_ >= kMaxOpenReaders) CloseIdle();
  const std::string path = PathOf(segment);
  const int cached = io_->Open(path, O_RDONLY);
  if (cached < 0) return Failed(path, -cached);
  ::posix_fadvise(cached, 0, 0, POSIX_FADV_RANDOM);  // a record is all that is wanted of its surroundings
  const int direct = io_->Open(path, O_RDONLY | O_DIRECT);
  file->readers = {.cached = cached, .direct = direct < 0 ? cached : direct};
  ++open_readers_;
  return Status::Ok();
}

void SegmentFiles::CloseReaders(File* file) {
  const Readers readers = std::exchange(file->readers, {});
  if (readers.cached < 0) return;
  ::close(readers.cached);
  if (readers.direct != readers.cached) ::close(readers.direct);
  --open_readers_;
}

void SegmentFiles::Unpin(uint32_t segment) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(segment);
  if (--found->second.pins > 0 || !found->second.is_removed) return;
  CloseReaders(&found->second);
  files_.erase(found);
}

void SegmentFiles::CloseIdle() {
  for (auto& [segment, file] : files_) {
    if (file.pins == 0) CloseReaders(&file);
  }
}

Result<std::shared_ptr<const OpenFile>> SegmentFiles::Writer(uint32_t segment) {
  const std::lock_guard lock(mutex_);
  const std::string path = PathOf(segment);
  if (writer_ == nullptr || writer_segment_ != segment) {
    int fd = io_->Open(path, O_WRONLY | O_DIRECT);
    if (fd == -EINVAL) {  // a file system without direct I/O
      is_direct_ = false;
      fd = io_->Open(path, O_WRONLY);
    }
    if (fd < 0) return Failed(path, -fd);
    writer_ = std::make_shared<const OpenFile>(fd);
    writer_segment_ = segment;
  }
  // What is written to a deleted file is gone when the process is.
  struct stat status;
  if (::fstat(writer_->fd(), &status) != 0 || status.st_nlink == 0) {
    writer_.reset();
    return Unavailable(path + ": deleted while the store is open");
  }
  return writer_;
}

bool SegmentFiles::is_direct() const {
  const std::lock_guard lock(mutex_);
  return is_direct_;
}

}  // namespace emberkv
