// Where the time of a step goes, for benchmarks. Off unless a Step is given a StageTimes.
//
// Used by the model thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace emberkv {

enum class Stage {
  kEmbedding,
  kEngram,
  kMixes,        // hyper-connections and norms
  kGlobalRows,   // compressor and index keys
  kProjections,  // queries, window rows, output
  kIndex,        // scores, candidate pool, top-k
  kAttention,    // over window and selected rows
  kExperts,      // router, routed and shared experts
  kHead,
};
inline constexpr size_t kNumStages = static_cast<size_t>(Stage::kHead) + 1;
const char* StageName(Stage stage);

struct StageTimes {
  std::array<double, kNumStages> seconds{};
};

// Adds the time of a scope to a stage. Scopes do not nest.
class StageTimer {
 public:
  StageTimer(StageTimes* times, Stage stage) : times_(times), stage_(stage) {
    if (times_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~StageTimer() {
    if (times_ == nullptr) return;
    times_->seconds[static_cast<size_t>(stage_)] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  StageTimes* const times_;
  const Stage stage_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace emberkv
