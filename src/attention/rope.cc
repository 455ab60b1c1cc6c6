#include "attention/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "formats/bf16.h"

namespace emberkv {
namespace {

// Index of the frequency whose wavelength fits `rotations` times into the original context.
double CorrectionDim(double rotations, int dim, double theta, const RopeScaling& scaling) {
  const double length = static_cast<double>(scaling.original_max_position_embeddings);
  return dim * std::log(length / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(theta));
}

void ApplyYarn(int dim, double theta, const RopeScaling& scaling, std::vector<float>* inv_freq) {
  const double low = std::max(std::floor(CorrectionDim(scaling.beta_fast, dim, theta, scaling)), 0.0);
  const double high =
      std::min(std::ceil(CorrectionDim(scaling.beta_slow, dim, theta, scaling)), dim - 1.0);
  const float width = static_cast<float>(std::max(high - low, 1e-3));
  const float factor = static_cast<float>(scaling.factor);
  for (size_t k = 0; k < inv_freq->size(); ++k) {
    float& f = (*inv_freq)[k];
    const float ramp =
        std::clamp((static_cast<float>(k) - static_cast<float>(low)) / width, 0.0f, 1.0f);
    const float smooth = 1.0f - ramp;
    f = f / factor * (1.0f - smooth) + f * smooth;
  }
}

}  // namespace

RopeTable::RopeTable(int dim, double theta, const std::optional<RopeScaling>& scaling) {
  for (int k = 0; k < dim / 2; ++k) {
    const float exponent = static_cast<float>(2 * k) / static_cast<float>(dim);
    inv_freq_.push_back(1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  if (scaling) ApplyYarn(dim, theta, *scaling, &inv_freq_);
}

void RopeTable::CosSin(int64_t pos, float* out) const {
  const size_t half = inv_freq_.size();
  for (size_t k = 0; k < half; ++k) {
    const double angle = static_cast<double>(static_cast<float>(pos) * inv_freq_[k]);
    out[k] = static_cast<float>(std::cos(angle));
    out[half + k] = static_cast<float>(std::sin(angle));
  }
}

void Rotate(float* x, const float* cos_sin, int dim, Rotation rotation) {
  const int half = dim / 2;
  for (int k = 0; k < half; ++k) {
    const float c = cos_sin[k];
    const float s = rotation == Rotation::kForward ? cos_sin[half + k] : -cos_sin[half + k];
    const float a = x[2 * k];
    const float b = x[2 * k + 1];
    x[2 * k] = RoundToBf16(a * c - b * s);
    x[2 * k + 1] = RoundToBf16(a * s + b * c);
  }
}

}  // namespace emberkv
