// The DeepSeek-V4.1 text model: weights and the forward pass over packed caches.
//
// Const after Load and shared by all threads; everything that changes is passed in: sequence state as
// views, scratch and batch as a Step. Only routed experts larger than memory come and go behind it.
// Results are batch-invariant: a row's bits do not depend on the rows beside it, on chunk sizes, threads
// or instruction set (docs/architecture.md, determinism).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "layout/cache_layout.h"
#include "layout/model_config.h"
#include "model/expert_stats.h"
#include "model/load_options.h"
#include "model/step.h"
#include "weights/checkpoint.h"

namespace emberkv {

struct ModelWeights;

class Model {
 public:
  // Packs the weights of `checkpoint` (a copy in the layout products stream; the files stay needed for
  // embeddings, Engram rows, and routed experts that do not fit). token_map: Engram's compressed id of
  // every token id; unused without Engram.
  static Result<std::unique_ptr<Model>> Load(std::shared_ptr<const Checkpoint> checkpoint,
                                             const ModelConfig& config, const CacheLayout& layout,
                                             std::vector<int32_t> token_map,
                                             const LoadOptions& options = {});
  ~Model();

  const ModelConfig& config() const { return config_; }
  const CacheLayout& layout() const { return layout_; }
  size_t weight_bytes() const;  // packed, resident now
  ExpertStats expert_stats() const;

  // Runs step->spans through all layers. Reads and writes each span's state; fills step->logits.
  // Fails on token ids the model does not have, on I/O errors of Engram tables and routed experts, and
  // when a row is not finite (nothing of it is stored); the sequences' state is then unspecified.
  Status Forward(Step* step) const;

  // The pieces of Forward, in order, for tests that feed single layers.
  Status Begin(Step* step) const;                // rows, embedding, angles
  Status RunLayer(int layer, Step* step) const;
  void Finish(Step* step) const;                 // final norm and head

 private:
  Model(const ModelConfig& config, const CacheLayout& layout);

  Status CheckTokens(const Step& step) const;
  void DropEncoderRows(Step* step) const;

  ModelConfig config_;
  CacheLayout layout_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::unique_ptr<ModelWeights> weights_;
};

}  // namespace emberkv
