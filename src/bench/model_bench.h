// The whole model against the machine: decode against the bytes a token must read, prefill against the bf16
// products it must do, whatever the context holds.
//
// Contexts are filled synthetically but validly: pages of random rows in the stored formats, so that a million
// tokens need no prefill. Used by one thread; the model uses `threads`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/measurement.h"
#include "model/stage_times.h"

namespace emberkv {

struct ModelBenchOptions {
  std::string model_dir;
  int threads = 1;
  int rounds = 3;
  std::vector<int64_t> contexts;  // tokens before the measured decode step, ascending
  std::vector<int> chunks;        // rows of the measured prefill steps
  std::function<void(const std::string&)> progress;  // what is being measured; may be empty
};

struct DecodePoint {
  int64_t context = 0;
  Measurement of_dram;     // bytes that the token must read, against DRAM
  double seconds = 0;      // per token
  StageTimes stages;       // seconds per token
  uint64_t read_bytes = 0;
};

struct PrefillPoint {
  int chunk = 0;
  bool is_full = false;    // all layers for every row, instead of the encoder's
  Measurement of_bf16;     // products, against VDPBF16PS
  double tokens_per_second = 0;
};

struct ModelReport {
  double load_seconds = 0;
  double read_seconds = 0;     // the same files read once, their pages in the cache as for the load
  uint64_t weight_bytes = 0;
  uint64_t loaded_bytes = 0;       // resident after the load
  uint64_t load_peak_bytes = 0;    // resident at most until then
  uint64_t global_kv_bytes = 0;    // of the longest context
  uint64_t sequence_bytes = 0;     // windows and tails: fixed
  std::vector<uint64_t> scratch_bytes;  // after each context, in their order
  std::vector<DecodePoint> decode;
  std::vector<PrefillPoint> prefill;
};

Result<ModelReport> BenchModel(const ModelBenchOptions& options);

}  // namespace emberkv
