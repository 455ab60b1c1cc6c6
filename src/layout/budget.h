// What a layout costs: memory of a session, what fits a tier, 72 hours of a token rate, operations
// of a decode step, and the bytes per token of this and earlier model generations. The arithmetic
// behind `emberkv plan`; every formula with its source is in docs/plan.md.
//
// Pure functions of their arguments: any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/cache_layout.h"
#include "layout/model_config.h"

namespace emberkv {

// --- memory ---

struct SessionMemory {
  int64_t tokens = 0;
  int64_t pages = 0;  // the last one may be partly filled
  uint64_t global_bytes = 0;
  uint64_t window_bytes = 0;          // all layers
  uint64_t encoder_window_bytes = 0;  // what a window checkpoint keeps
  uint64_t tail_bytes = 0;
};

SessionMemory MemoryOfSession(const CacheLayout& layout, int64_t tokens);

enum class Tier {
  kDevice,  // sessions that run: pages, all windows, tails
  kHost,    // sessions that pause: pages, encoder window checkpoint, tails
  kSsd,     // pages alone; windows are replayed
};

// The bytes one session takes in a tier. Nothing is shared between sessions in this count.
uint64_t SessionBytes(const SessionMemory& session, Tier tier);

struct TierFit {
  int64_t sessions = 0;  // of the given length, each with pages of its own
  int64_t tokens = 0;    // whole pages of global KV alone, however many sequences share them
};

// `tier_bytes` is what is set aside for the cache: weights and scratch are not in it.
TierFit FitTier(const CacheLayout& layout, Tier tier, uint64_t tier_bytes, int64_t session_tokens);

// Global KV of `hours` of a steady rate of tokens never seen before.
double RetainedBytes(const CacheLayout& layout, double tokens_per_second, double hours);

// --- operations ---

// One kind of matrix product in a decode step. An operation counts `weight`: 1 for BF16 (and FP32),
// 0.5 where weights are quantised (their activations are FP8), 0.25 for FP4 x FP4.
struct OperationTerm {
  std::string name;
  double weight = 0;
  double operations = 0;  // two for each multiply-add, not yet weighted

  double weighted() const { return weight * operations; }
};

// All matrix products of one decode step with `tokens` tokens in the cache.
std::vector<OperationTerm> DecodeOperations(const ModelConfig& config, const CacheLayout& layout,
                                            int64_t tokens);

double TotalWeighted(const std::vector<OperationTerm>& terms);

struct TokenLayers {
  int64_t computed =
      0;             // encoder layers for all tokens, decoder layers for the last window of them
  int64_t full = 0;  // every layer for every token
  double share() const { return full == 0 ? 0 : double(computed) / double(full); }
};

// Prefill of `tokens` tokens with bounded decoder replay.
TokenLayers PrefillTokenLayers(const ModelConfig& config, const CacheLayout& layout,
                               int64_t tokens);

// --- generations ---

// Values of one width within a row.
struct RowField {
  int count = 0;
  int bits = 0;
};

// Rows of one kind, one in each of `layers` layers for every `tokens_per_row` tokens.
struct RowGeometry {
  std::string what;
  int layers = 0;
  int tokens_per_row = 1;
  std::vector<RowField> fields;

  int64_t row_bytes() const;
  double bytes_per_token() const;
};

struct Generation {
  std::string name;
  std::string source;  // where the geometry is published
  std::vector<RowGeometry> rows;

  double bytes_per_token() const;
};

// KV that grows with the context; windows are bounded and not in it.
Generation GenerationV1();
Generation GenerationV32();
Generation GenerationV4Flash();
Generation GenerationOf(const ModelConfig& config, const CacheLayout& layout);

// Bytes that V4-Flash's store held for each byte of global KV: windows were kept on SSD too and
// took about half of it (technical report arXiv 2609.19969, 3.2.1).
inline constexpr double kV4StoredPerGlobalByte = 2;

}  // namespace emberkv
