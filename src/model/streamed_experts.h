// Routed experts larger than memory: read from the checkpoint's files in their stored layout when the
// router has chosen them, and packed next to use, into the same bytes that a load would pack.
// Internal to model/.
//
// What was read is kept within a budget, the experts used last longest. What a caller has taken stays
// alive until it lets go of it, whatever is dropped meanwhile; the budget has room for one caller's.
// Any thread may call anything; each thread that takes brings a pool of its own.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "layout/model_config.h"
#include "linear/packed_matrix.h"
#include "model/expert_stats.h"
#include "weights/checkpoint.h"

namespace emberkv {

struct ExpertWeights {
  PackedMatrix w1, w2, w3;

  size_t bytes() const { return w1.bytes() + w2.bytes() + w3.bytes(); }
};

// Packed bytes of one routed expert; all have one shape.
uint64_t RoutedExpertBytes(const ModelConfig& config);

// Of a tensor of the checkpoint.
Status NotFinite(const std::string& name);

// Reads and packs routed experts of a layer on `pool`, in the order of their ids. Reads the files, not
// their mappings: a file that was cut gives an error that names it and the tensor.
Result<std::vector<ExpertWeights>> ReadExperts(const Checkpoint& checkpoint, int layer,
                                               std::span<const int> experts, ThreadPool* pool);

class StreamedExperts {
 public:
  using Expert = std::shared_ptr<const ExpertWeights>;

  // How many experts a caller takes at once: enough to be packed side by side.
  static constexpr size_t kTakenAtOnce = 4;

  // Reads nothing yet. `checkpoint` must outlive the object.
  StreamedExperts(const Checkpoint& checkpoint, const ModelConfig& config, uint64_t budget_bytes);

  // The weights of `experts`, at most kTakenAtOnce different ones, in their order. Those not kept are
  // read, on `pool`; fails as ReadExperts does.
  Result<std::vector<Expert>> Take(int layer, std::span<const int> experts, ThreadPool* pool);

  // Lets the system read those not kept while the caller works.
  void ReadAhead(int layer, std::span<const int> experts) const;

  ExpertStats stats() const;

 private:
  struct Slot {
    Expert kept;                       // null when it must be read
    std::list<size_t>::iterator used;  // in recency_, unless null
  };

  size_t SlotOf(int layer, int expert) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(experts_per_layer_) + static_cast<size_t>(expert);
  }
  void Keep(size_t index, const Expert& expert);  // with mutex_ held

  // Constant after construction.
  const Checkpoint& checkpoint_;
  const int experts_per_layer_;
  const uint64_t expert_bytes_;
  const uint64_t most_kept_;  // experts

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;    // guarded by mutex_
  std::list<size_t> recency_;  // guarded by mutex_; of kept slots, used last first
  uint64_t uses_ = 0;          // guarded by mutex_
  uint64_t reads_ = 0;         // guarded by mutex_
};

}  // namespace emberkv
