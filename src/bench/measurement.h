// One line of a benchmark: what was achieved, the limit of the machine beside it, and a rival.
//
// Machines are noisy, so limit, kernel and rival take turns within one run, the limit directly before and
// after the kernel, and a ratio is the median of the rounds' ratios to the mean of the two probes. Used by
// one thread; the measured work may use threads of its own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace emberkv {

// One kind of work that takes turns with others.
struct Contender {
  std::string name;           // "DRAM read", "OpenBLAS sgemm"
  double amount = 0;          // of `unit` that one call of `run` handles: bytes / 1e9 for GB/s
  std::function<void()> run;  // takes at least a few milliseconds
};

struct MeasurementSpec {
  std::string name;  // "FP8 matrix-vector 5120 x 1280, M = 1"
  std::string unit;  // of amount per second: "GB/s", "GFLOP/s", "Mpos/s"
  int threads = 1;
  Contender subject;
  std::optional<Contender> limit;
  std::optional<Contender> rival;
  std::optional<double> goal;  // the least ratio to the limit
  bool uses_thread_time = false;  // processor time of the calling thread instead of time: one thread only
};

struct Measurement {
  std::string name;
  std::string unit;
  int threads = 1;
  double achieved = 0;  // medians
  std::string limit_name;
  double limit = 0;  // 0: none
  double ratio = 0, ratio_least = 0, ratio_most = 0;  // achieved / limit
  std::string rival_name;
  double rival = 0;          // 0: none
  double rival_ratio = 0;    // achieved / rival
  std::optional<double> goal;
  std::string note;  // what a reader must know; usually empty

  bool misses_goal() const { return goal && ratio < *goal; }
};

// `rounds` turns of limit, subject, limit again and rival, after one that does not count.
Measurement Measure(const MeasurementSpec& spec, int rounds);

// Processor time of the calling thread.
double ThreadSeconds();

}  // namespace emberkv
