// Prefill and decode of a whole model, with what bounded replay saves measured in the same run.
//
//   engine_bench MODEL_DIR [TOKENS...]     e.g. engine_bench models/ember-tiny 2048 8192 32768
//
// The prompt is the same pseudo-random ids for every mode. Times are wall clock; quote the ratios.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace {

constexpr int64_t kDecodeTokens = 64;

struct Measured {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  double token_layer_share = 0;
};

std::vector<int32_t> RandomIds(const emberkv::Engine& engine, int64_t count) {
  std::mt19937 rng(1);
  const uint32_t ordinary = static_cast<uint32_t>(engine.config().vocab_size) - 64;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(16 + rng() % (ordinary - 16)));
  return ids;
}

emberkv::Result<Measured> Measure(const emberkv::Engine& engine, const std::vector<int32_t>& ids,
                                  emberkv::ReplayMode mode) {
  emberkv::SessionOptions cold;
  cold.reuses_prefixes = false;
  EMBERKV_ASSIGN_OR_RETURN(const auto session, engine.OpenSession(cold));
  emberkv::PrefillOptions prefill;
  prefill.replay = mode;
  EMBERKV_RETURN_IF_ERROR(session->Prefill(ids, prefill));
  emberkv::GenerateOptions generate;
  generate.max_tokens = kDecodeTokens;
  generate.stops_at_eos = false;
  EMBERKV_ASSIGN_OR_RETURN(const emberkv::Generation answer, session->Generate(generate));
  const emberkv::SessionStats stats = session->stats();
  return Measured{static_cast<double>(stats.prefill_tokens) / stats.prefill_seconds,
                  static_cast<double>(stats.decode_tokens) / stats.decode_seconds,
                  stats.token_layer_share()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: engine_bench MODEL_DIR [TOKENS...]\n");
    return 2;
  }
  emberkv::EngineOptions options;
  options.model_dir = argv[1];
  const auto engine = emberkv::Engine::Load(options);
  if (!engine.ok()) {
    fmt::print(stderr, "{}\n", engine.status().ToString());
    return 1;
  }
  std::vector<int64_t> lengths;
  for (int i = 2; i < argc; ++i) lengths.push_back(std::strtoll(argv[i], nullptr, 10));
  if (lengths.empty()) lengths = {2048, 8192, 32768};
  fmt::print("{} threads, {}\n", (*engine)->num_threads(), (*engine)->isa_name());
  fmt::print("{:>8} {:>8} {:>12} {:>12} {:>13} {:>14}\n", "tokens", "replay", "prefill t/s", "decode t/s",
             "token-layers", "time of full");
  for (const int64_t length : lengths) {
    const std::vector<int32_t> ids = RandomIds(**engine, length);
    double full_rate = 0;
    for (const emberkv::ReplayMode mode :
         {emberkv::ReplayMode::kFull, emberkv::ReplayMode::kExact, emberkv::ReplayMode::kBounded}) {
      const auto measured = Measure(**engine, ids, mode);
      if (!measured.ok()) {
        fmt::print(stderr, "{}\n", measured.status().ToString());
        return 1;
      }
      if (mode == emberkv::ReplayMode::kFull) full_rate = measured->prefill_tokens_per_s;
      fmt::print("{:>8} {:>8} {:>12.0f} {:>12.0f} {:>12.1f}% {:>13.1f}%\n", length,
                 emberkv::ReplayModeName(mode), measured->prefill_tokens_per_s,
                 measured->decode_tokens_per_s, 100 * measured->token_layer_share,
                 100 * full_rate / measured->prefill_tokens_per_s);
    }
  }
  return 0;
}
