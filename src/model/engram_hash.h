// Which Engram rows a token looks up: constants and hash of numerics 13.2 and 13.3.
//
// Immutable after construction; any thread may hash. All integers are 64-bit and exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "layout/model_config.h"

namespace emberkv {

// The constants of one Engram layer.
struct EngramLayerHash {
  int layer = 0;
  std::vector<int64_t> multipliers;  // [max_ngram_size], odd
  std::vector<int64_t> primes;       // [(max_ngram_size - 1) * n_heads], 2-grams first
  std::vector<int64_t> offsets;      // exclusive prefix sums of the primes
};

class EngramHash {
 public:
  // token_map: token id -> compressed id. Fails when a layer's primes do not add up to its table's
  // rows, which means that the map or the config is not the model's.
  static Result<EngramHash> Make(const ModelConfig& config, std::vector<int32_t> token_map);

  int num_columns() const { return num_columns_; }  // rows looked up per token
  const std::vector<EngramLayerHash>& layers() const { return layers_; }

  // Row ids of the token at `pos` of `tokens` (ids of the whole sequence, at least pos + 1 of them) for
  // engram layer `index`; out [num_columns()]. Before the start stands the pad token. Token ids must be
  // below the size of the map (Contains).
  void Rows(int index, const int32_t* tokens, int64_t pos, int64_t* out) const;

  bool Contains(int32_t token) const {
    return token >= 0 && token < static_cast<int32_t>(token_map_.size());
  }

 private:
  int max_ngram_ = 0;
  int n_heads_ = 0;
  int num_columns_ = 0;
  int32_t pad_ = 0;  // compressed
  std::vector<int32_t> token_map_;
  std::vector<EngramLayerHash> layers_;
};

// `count` draws of numpy's default_rng(seed).integers(0, bound) (PCG64 seeded by SeedSequence, Lemire's
// bounded draw). Exposed for tests.
std::vector<int64_t> NumpyIntegers(uint64_t seed, int count, uint64_t bound);

}  // namespace emberkv
