// What this machine can do at most, as contenders for Measure (bench/measurement.h).
//
// On a shared machine a ratio to a limit that was probed a moment ago carries over to the next run;
// an absolute time does not. A call of `run` takes 5 to 20 ms. Probes use the widest instructions
// of the CPU, whatever a test forces for kernels. A contender owns what it needs (buffers, threads)
// and is run by one thread at a time; with `threads` > 1 it works on that many.
#pragma once

#include "bench/measurement.h"

namespace emberkv {

// GFLOP/s of fp32 multiply-adds; a multiply-add counts as 2 here and below.
Contender FmaLimit(int threads);
// GFLOP/s of VDPBF16PS. A CPU without it gives FmaLimit: what bf16 products can reach there.
Contender Bf16DotLimit(int threads);
// GOP/s of VPDPBUSD; without it FmaLimit as well.
Contender Int8DotLimit(int threads);
// GB/s read once from a buffer eight times as large as a big L3 cache (256 MiB).
Contender DramReadLimit(int threads);

// The core clock in GHz of the calling thread, from a chain of dependent additions. Takes about 10
// ms.
double CoreGhz();

}  // namespace emberkv
