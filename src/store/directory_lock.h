// Keeps a store directory to one process: a locked file that names its owner.
//
// The lock goes with the process, however it ends. A plain value with one owner; const methods from any
// thread.
#pragma once

#include <string>

#include "base/status.h"

namespace emberkv {

class DirectoryLock {
 public:
  // The name of the file in the directory.
  static constexpr const char* kFileName = "LOCK";

  // Refused with the owner's process id while somebody holds it.
  static Result<DirectoryLock> Take(const std::string& directory);

  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

  bool is_in_place() const;  // the locked file was not deleted from outside

 private:
  DirectoryLock(std::string path, int fd);

  const std::string path_;
  int fd_;
};

}  // namespace emberkv
