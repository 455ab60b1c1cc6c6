// What resuming saves: time to the first token, cold and warm, and the rate at which a session's pages come back.
//
// Used by one thread. Makes and removes stores in a folder of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/measurement.h"
#include "engine/engine.h"

namespace emberkv {

struct FirstToken {
  std::string state;  // "cold", "from memory", "from disk after a restart"
  double seconds = 0;
  ReuseStats reuse;
};

// A prompt of `tokens` random ids: cold; from memory; from the store in `directory` after a restart, windows lost.
Result<std::vector<FirstToken>> BenchFirstToken(const std::string& model_dir, const std::string& directory,
                                                int64_t tokens);

// Loads the pages of a session of 100,000 tokens of the released layout from a store in `directory`, verified,
// against direct reads of 1 MiB of as many bytes in one plain file.
Result<Measurement> BenchSessionLoad(const std::string& directory, int rounds);

// Tokens per second of a cold prompt and of its answer, by replay mode.
struct ReplayRate {
  ReplayMode replay = ReplayMode::kBounded;
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double token_layer_share = 0;  // of full
};
Result<std::vector<ReplayRate>> BenchReplay(const std::string& model_dir, int64_t tokens, int threads);

}  // namespace emberkv
