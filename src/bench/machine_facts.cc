#include "bench/machine_facts.h"

#include <fmt/chrono.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/isa.h"
#include "base/machine_memory.h"

namespace emberkv {
namespace {

// What follows the colon on the first line of `path` that begins with `key`; empty if none does.
std::string FieldOf(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t at = colon == std::string::npos ? std::string::npos : line.find_first_not_of(" \t", colon + 1);
    if (at != std::string::npos) return line.substr(at);
  }
  return "";
}

uint64_t KibibytesOf(const std::string& key) {
  return std::strtoull(FieldOf("/proc/self/status", key).c_str(), nullptr, 10) << 10;
}

}  // namespace

MachineFacts FactsOfThisMachine() {
  MachineFacts facts;
  facts.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  facts.cpu = FieldOf("/proc/cpuinfo", "model name");
  facts.cores = static_cast<int>(std::thread::hardware_concurrency());
  facts.memory_bytes = MachineMemoryBytes();
  facts.isa = IsaName(ActiveIsa());
#if defined(__clang__)
  facts.compiler = "clang " __clang_version__;
#else
  facts.compiler = "g++ " __VERSION__;
#endif
  return facts;
}

uint64_t PeakResidentBytes() { return KibibytesOf("VmHWM"); }
uint64_t ResidentBytes() { return KibibytesOf("VmRSS"); }

}  // namespace emberkv
