#include "model/engram_hash.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <numeric>
#include <set>

namespace emberkv {
namespace {

__extension__ typedef unsigned __int128 Uint128;

constexpr uint64_t kSeedPerLayer = 10007;

// numpy's SeedSequence(seed).generate_state(4, uint64) for a seed below 2^32 (numpy:
// numpy/random/bit_generator.pyx).
std::array<uint64_t, 4> SeedSequenceState(uint64_t seed) {
  constexpr uint32_t kInitA = 0x43b0d7e5, kMultA = 0x931e8875;
  constexpr uint32_t kInitB = 0x8b51f9dd, kMultB = 0x58f38ded;
  constexpr uint32_t kMixL = 0xca01f9dd, kMixR = 0x4973f715;
  uint32_t hash_const = kInitA;
  const auto hash = [&hash_const](uint32_t value) {
    value ^= hash_const;
    hash_const *= kMultA;
    value *= hash_const;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t result = kMixL * x - kMixR * y;
    return result ^ (result >> 16);
  };
  // The entropy is the seed's 32-bit words, low first, as many as it has (at least one).
  std::array<uint32_t, 4> pool{};
  const std::array<uint32_t, 2> entropy = {static_cast<uint32_t>(seed),
                                           static_cast<uint32_t>(seed >> 32)};
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i < entropy.size() ? entropy[i] : 0);
  for (size_t source = 0; source < pool.size(); ++source) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (source != to) pool[to] = mix(pool[to], hash(pool[source]));
    }
  }
  uint32_t state_const = kInitB;
  std::array<uint32_t, 8> words{};
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t value = pool[i % pool.size()] ^ state_const;
    state_const *= kMultB;
    value *= state_const;
    words[i] = value ^ (value >> 16);
  }
  std::array<uint64_t, 4> state{};
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = words[2 * i] | (uint64_t{words[2 * i + 1]} << 32);
  }
  return state;
}

// PCG64 (XSL-RR output) as numpy seeds it.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const std::array<uint64_t, 4> s = SeedSequenceState(seed);
    const Uint128 initial = (Uint128{s[0]} << 64) | s[1];
    increment_ = (((Uint128{s[2]} << 64) | s[3]) << 1) | 1;
    Step();
    state_ += initial;
    Step();
  }

  uint64_t Next() {
    Step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const unsigned rotate = static_cast<unsigned>(state_ >> 122);
    return (folded >> rotate) | (folded << ((64 - rotate) & 63));
  }

 private:
  void Step() {
    constexpr Uint128 kMultiplier = (Uint128{2549297995355413924ULL} << 64) | 4865540595714422341ULL;
    state_ = state_ * kMultiplier + increment_;
  }

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

bool IsPrime(int64_t n) {
  if (n < 2 || (n % 2 == 0 && n != 2)) return false;
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

}  // namespace

std::vector<int64_t> NumpyIntegers(uint64_t seed, int count, uint64_t bound) {
  Pcg64 rng(seed);
  std::vector<int64_t> out;
  const uint64_t reject_below = (0 - bound) % bound;
  while (static_cast<int>(out.size()) < count) {
    const Uint128 product = Uint128{rng.Next()} * bound;
    if (static_cast<uint64_t>(product) < reject_below) continue;
    out.push_back(static_cast<int64_t>(product >> 64));
  }
  return out;
}

Result<EngramHash> EngramHash::Make(const ModelConfig& config, std::vector<int32_t> token_map) {
  EngramHash hash;
  hash.max_ngram_ = config.engram_max_ngram_size;
  hash.n_heads_ = config.engram_n_heads;
  hash.num_columns_ = (hash.max_ngram_ - 1) * hash.n_heads_;
  hash.token_map_ = std::move(token_map);
  if (!hash.Contains(config.engram_pad_token_id)) {
    return InvalidArgument(fmt::format("engram_pad_token_id is {}; the token map has {} ids",
                                       config.engram_pad_token_id, hash.token_map_.size()));
  }
  hash.pad_ = hash.token_map_[static_cast<size_t>(config.engram_pad_token_id)];
  const uint64_t bound = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() /
                                               config.engram_compressed_vocab_size / 2);
  std::set<int64_t> seen;  // one set over all layers
  for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
    EngramLayerHash layer;
    layer.layer = config.engram_layer_ids[i];
    layer.multipliers =
        NumpyIntegers(kSeedPerLayer * static_cast<uint64_t>(layer.layer), hash.max_ngram_, bound);
    for (int64_t& m : layer.multipliers) m = 2 * m + 1;
    for (int n = 2; n <= hash.max_ngram_; ++n) {
      int64_t candidate = config.engram_vocab_size - 1;
      for (int head = 0; head < hash.n_heads_; ++head) {
        do {
          ++candidate;
        } while (!IsPrime(candidate) || seen.contains(candidate));
        seen.insert(candidate);
        layer.primes.push_back(candidate);
      }
    }
    layer.offsets.resize(layer.primes.size());
    std::exclusive_scan(layer.primes.begin(), layer.primes.end(), layer.offsets.begin(), int64_t{0});
    const int64_t total = layer.offsets.back() + layer.primes.back();
    if (total != config.engram_num_embeddings[i]) {
      return InvalidArgument(
          fmt::format("engram_num_embeddings[{}] is {}; engram_vocab_size {} with {} heads gives {}", i,
                      config.engram_num_embeddings[i], config.engram_vocab_size, hash.n_heads_, total));
    }
    hash.layers_.push_back(std::move(layer));
  }
  return hash;
}

void EngramHash::Rows(int index, const int32_t* tokens, int64_t pos, int64_t* out) const {
  const EngramLayerHash& layer = layers_[static_cast<size_t>(index)];
  const auto compressed = [&](int back) -> int64_t {
    return pos < back ? pad_ : token_map_[static_cast<size_t>(tokens[pos - back])];
  };
  // Multipliers are below 2^63 / compressed vocabulary, so products stay non-negative.
  int64_t mixed = compressed(0) * layer.multipliers[0];
  size_t column = 0;
  for (int n = 2; n <= max_ngram_; ++n) {
    mixed ^= compressed(n - 1) * layer.multipliers[static_cast<size_t>(n - 1)];
    for (int head = 0; head < n_heads_; ++head, ++column) {
      out[column] = mixed % layer.primes[column] + layer.offsets[column];
    }
  }
}

}  // namespace emberkv
