#include "attention/attention_shares.h"

#include <algorithm>
#include <numeric>

namespace emberkv {
namespace {

constexpr int kHeadsOfVector = 16;   // fewer would leave lanes empty
constexpr int64_t kUnitsAtOnce = 4;  // rows, or parts of them, that a thread takes at a time

// Every part decodes all of the row's cache rows, so there are no more parts than give each thread as much.
int PartsOfRow(int64_t rows, int heads, int threads) {
  if (rows >= kUnitsAtOnce * threads) return 1;
  const int64_t even = threads / std::gcd(rows, int64_t{threads});
  return static_cast<int>(std::clamp<int64_t>(heads / kHeadsOfVector, 1, even));
}

}  // namespace

void ForEachAttentionShare(int64_t rows, int heads, ThreadPool* pool,
                           const std::function<void(const AttentionShare&, int)>& body) {
  if (rows == 0) return;
  const int parts = PartsOfRow(rows, heads, pool->num_threads());
  const int vectors = (heads + kHeadsOfVector - 1) / kHeadsOfVector;
  const auto first_head = [&](int part) { return std::min(heads, vectors * part / parts * kHeadsOfVector); };
  const int64_t units = rows * parts;
  const int64_t grain = std::clamp<int64_t>(units / pool->num_threads(), 1, kUnitsAtOnce);
  pool->ParallelFor(units, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int part = static_cast<int>(unit % parts);
      const int first = first_head(part);
      body({unit / parts, first, first_head(part + 1) - first}, thread);
    }
  });
}

}  // namespace emberkv
