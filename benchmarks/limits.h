// What this machine can do at most, measured on the calling thread of the running process.
//
// Benchmarks divide by these figures: on a shared machine a ratio to a limit probed a moment ago
// carries over to the next run, an absolute time does not.
#pragma once

namespace emberkv {

struct MachineLimits {
  double ghz = 0;         // core clock, from a chain of dependent additions
  double fma_gflops = 0;  // fp32 multiply-adds of the widest supported vectors, 2 operations each
  double l1_store_gb_s = 0;   // stores into 16 KiB
  double l2_store_gb_s = 0;   // stores into 256 KiB
  double dram_read_gb_s = 0;  // loads from 512 MiB
};

// Processor time of the calling thread: what neighbours take away does not count.
double ThreadSeconds();

// Measures for about two seconds.
MachineLimits ProbeMachineLimits();

}  // namespace emberkv
