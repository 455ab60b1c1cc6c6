#include "store/store_format.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/mapped_file.h"
#include "store/directory_lock.h"
#include "store/record_format.h"

namespace emberkv {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormatFile = "FORMAT";
constexpr const char* kSettingsFile = "SETTINGS";
constexpr const char* kHalfMade = ".new";
constexpr uint64_t kMaxTextBytes = 4096;

Status Failed(const std::string& path) {
  return Unavailable(fmt::format("{}: {}", path, std::strerror(errno)));
}

Status SyncPath(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed(path);
  const bool is_synced = ::fsync(fd) == 0;
  const Status status = is_synced ? Status::Ok() : Failed(path);
  ::close(fd);
  return status;
}

// Durably: afterwards the file holds all of the text, and after a crash all of it or what was there before.
Status WriteTextFile(const std::string& directory, const std::string& name, const std::string& text) {
  const std::string path = directory + "/" + name;
  const std::string half_made = path + kHalfMade;
  const int fd = ::open(half_made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(half_made);
  const bool is_written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                          ::fsync(fd) == 0;
  const Status written = is_written ? Status::Ok() : Failed(half_made);
  ::close(fd);
  EMBERKV_RETURN_IF_ERROR(written);
  if (::rename(half_made.c_str(), path.c_str()) != 0) return Failed(path);
  return SyncPath(directory);
}

Result<StoreFormat> ParseFormat(const std::string& path, const std::string& text) {
  unsigned version = 0;
  unsigned long long segment_bytes = 0;
  if (std::sscanf(text.c_str(), "emberkv store\nversion %u\n", &version) != 1) {
    return DataLoss(path + ": not the FORMAT file of a store");
  }
  if (version < kOldestStoreFormatVersion || version > kStoreFormatVersion) {
    return InvalidArgument(fmt::format("{}: the store is of version {}, this build knows versions {} to {}", path,
                                       version, kOldestStoreFormatVersion, kStoreFormatVersion));
  }
  if (std::sscanf(text.c_str(), "emberkv store\nversion %u\nsegment_bytes %llu\n", &version,
                  &segment_bytes) != 2 ||
      segment_bytes == 0 || segment_bytes % kSlotBytes != 0 || segment_bytes / kSlotBytes > UINT32_MAX) {
    return DataLoss(path + ": segment_bytes is missing or no multiple of 4096");
  }
  return StoreFormat{version, segment_bytes};
}

}  // namespace

Status PrepareStoreDirectory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) return Failed(directory);
  bool has_format = false;
  std::string foreign;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    has_format |= name == kFormatFile;
    if (name != kFormatFile + std::string(kHalfMade) && name != DirectoryLock::kFileName) foreign = name;
  }
  if (error) return Unavailable(directory + ": " + error.message());
  if (has_format || foreign.empty()) return Status::Ok();
  return InvalidArgument(fmt::format("{}: neither empty nor a store (no {} file, but {})", directory,
                                     kFormatFile, foreign));
}

Result<StoreFormat> ReadOrWriteFormat(const std::string& directory, uint64_t segment_bytes) {
  const std::string path = directory + "/" + kFormatFile;
  ::unlink((path + kHalfMade).c_str());
  if (::access(path.c_str(), F_OK) != 0) {
    if (errno != ENOENT) return Failed(path);
    const StoreFormat format{.segment_bytes = segment_bytes};
    EMBERKV_RETURN_IF_ERROR(WriteFormat(directory, format));
    return format;
  }
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTextBytes));
  return ParseFormat(path, text);
}

Status WriteFormat(const std::string& directory, const StoreFormat& format) {
  return WriteTextFile(
      directory, kFormatFile,
      fmt::format("emberkv store\nversion {}\nsegment_bytes {}\n", format.version, format.segment_bytes));
}

Result<StoreSettings> ReadSettings(const std::string& directory) {
  const std::string path = directory + "/" + kSettingsFile;
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return NotFound(path + ": no such file");
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTextBytes));
  unsigned long long budget_bytes = 0;
  long long retention_us = 0;
  if (std::sscanf(text.c_str(), "budget_bytes %llu\nretention_us %lld\n", &budget_bytes, &retention_us) != 2 ||
      budget_bytes == 0 || retention_us <= 0) {
    return DataLoss(path + ": budget_bytes or retention_us is missing or 0");
  }
  return StoreSettings{budget_bytes, std::chrono::microseconds(retention_us)};
}

Status WriteSettings(const std::string& directory, const StoreSettings& settings) {
  return WriteTextFile(directory, kSettingsFile,
                       fmt::format("budget_bytes {}\nretention_us {}\n", settings.budget_bytes,
                                   settings.retention.count()));
}

}  // namespace emberkv
