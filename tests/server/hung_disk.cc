// Preloaded into a server, it makes its disk hang: while a file named disk_hangs lies beside the store's folder,
// syncs of segment files do not end.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

extern "C" int fdatasync(int fd) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  if (file.filename().string().starts_with("segment-")) {
    const fs::path sign = file.parent_path().parent_path() / "disk_hangs";
    while (fs::exists(sign, error)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  static const auto kSync = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fdatasync"));
  return kSync(fd);
}
