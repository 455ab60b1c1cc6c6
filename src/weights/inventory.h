// The tensors a config demands of its checkpoint: names, types and shapes (numerics 2).
//
// Derived from config values alone by a pure function; an Inventory is a plain value, const after
// construction, and any thread may read it. The families that the text model does not run yet are
// known by name only and are no part of the inventory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "layout/model_config.h"
#include "weights/safetensors.h"

namespace emberkv {

enum class TensorFamily {
  kEmbedding,  // embed and head
  kNorm,       // of layers and of the end; the norms inside attention count as attention
  kHyperConnection,
  kAttention,
  kCompressor,
  kIndexer,
  kRouter,
  kRoutedExperts,
  kSharedExperts,
  kEngram,
  kEngramTable,
  // Not run yet.
  kDraftStages,  // mtp.*
  kVision,       // vision.*
  kAligner,      // aligner.*
  kImageTokens,  // image_start, image_end, image_newline
};

inline constexpr int kNumTensorFamilies = static_cast<int>(TensorFamily::kImageTokens) + 1;

const char* TensorFamilyName(TensorFamily family);
inline bool IsUnused(TensorFamily family) { return family >= TensorFamily::kDraftStages; }

// The family of a released tensor that the text model does not use; nullopt for all other names.
std::optional<TensorFamily> UnusedFamilyOf(std::string_view name);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  TensorFamily family = TensorFamily::kEmbedding;
};

class Inventory {
 public:
  // `config` must have passed CheckModelConfig. Fails when it demands an absurd number of tensors.
  static Result<Inventory> Make(const ModelConfig& config);

  const std::vector<TensorSpec>& tensors() const { return tensors_; }  // sorted by name
  const TensorSpec* Find(std::string_view name) const;                 // nullptr when unknown

  // The demanded name that an unknown name was most likely meant to be; empty when none is close.
  std::string Suggestion(std::string_view unknown) const;

 private:
  std::vector<TensorSpec> tensors_;
};

}  // namespace emberkv
