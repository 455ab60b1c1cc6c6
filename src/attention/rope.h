// Rotary position embedding over adjacent channel pairs, with YaRN for layers of ratio > 0 (numerics 5).
//
// A RopeTable is immutable and shared by all threads. Angles are the fp32 product of position and
// inverse frequency; computing them in double would differ at large positions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/model_config.h"

namespace emberkv {

class RopeTable {
 public:
  RopeTable() = default;
  // dim: rotated channels (even). scaling: YaRN, or nullopt for plain frequencies.
  RopeTable(int dim, double theta, const std::optional<RopeScaling>& scaling);

  int dim() const { return 2 * static_cast<int>(inv_freq_.size()); }
  const std::vector<float>& inv_freq() const { return inv_freq_; }

  // Writes cos and sin of the dim()/2 angles at `pos`: out[0..dim/2) cos, out[dim/2..dim) sin.
  void CosSin(int64_t pos, float* out) const;

 private:
  std::vector<float> inv_freq_;
};

enum class Rotation { kForward, kInverse };

// Rotates x[0..dim) in place by the angles of `cos_sin` (RopeTable::CosSin) and rounds to bf16.
void Rotate(float* x, const float* cos_sin, int dim, Rotation rotation);

}  // namespace emberkv
