// The machine that a benchmark ran on, as far as a reader needs it to judge the figures.
//
// A plain value; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace emberkv {

struct MachineFacts {
  std::string date;      // 2026-11-29
  std::string cpu;       // as the system names it
  int cores = 0;
  uint64_t memory_bytes = 0;
  std::string isa;       // the instruction set that kernels run on
  std::string compiler;
};

MachineFacts FactsOfThisMachine();

// The most memory this process has had resident, and what it has now.
uint64_t PeakResidentBytes();
uint64_t ResidentBytes();

}  // namespace emberkv
