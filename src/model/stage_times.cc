#include "model/stage_times.h"

namespace emberkv {

const char* StageName(Stage stage) {
  static constexpr std::array<const char*, kNumStages> kNames = {
      "embedding", "engram", "mixes", "global rows", "projections", "index", "attention", "experts", "head"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace emberkv
