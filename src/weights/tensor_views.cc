// How the typed views of checkpoint.h read their bytes.
#include <cassert>
#include <cstring>

#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "weights/checkpoint.h"

namespace emberkv {
namespace {

constexpr int kScaleGroup = 32;

int64_t NumElements(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;
  return n;
}

}  // namespace

int64_t Bf16Tensor::size() const { return NumElements(shape); }

void Bf16Tensor::Read(int64_t begin, std::span<float> out) const {
  assert(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= size());
  const uint8_t* from = bytes + 2 * begin;
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    out[i] = Bf16ToFloat(bits);
  }
}

std::vector<float> Bf16Tensor::ToFloats() const {
  std::vector<float> values(static_cast<size_t>(size()));
  Read(0, values);
  return values;
}

int64_t F32Tensor::size() const { return NumElements(shape); }

void F32Tensor::Read(int64_t begin, std::span<float> out) const {
  assert(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= size());
  if (!out.empty()) std::memcpy(out.data(), bytes + 4 * begin, out.size_bytes());
}

std::vector<float> F32Tensor::ToFloats() const {
  std::vector<float> values(static_cast<size_t>(size()));
  Read(0, values);
  return values;
}

Status EngramTable::ReadRows(std::span<const int64_t> row_ids, float* out) const {
  const auto dim = static_cast<size_t>(head_dim_);
  std::vector<uint8_t> codes(dim);
  std::vector<uint8_t> scales(static_cast<size_t>(groups_));
  for (const int64_t row : row_ids) {
    if (row < 0 || row >= num_rows_) {
      return InvalidArgument("Engram table of layer " + std::to_string(layer_) + ": row " +
                             std::to_string(row) + " is outside 0 to " +
                             std::to_string(num_rows_ - 1));
    }
    const auto index = static_cast<uint64_t>(row);
    EMBERKV_RETURN_IF_ERROR(weight_file_->ReadAt(weight_offset_ + index * codes.size(), codes));
    EMBERKV_RETURN_IF_ERROR(scale_file_->ReadAt(scale_offset_ + index * scales.size(), scales));
    for (size_t i = 0; i < dim; ++i) {
      out[i] = E4m3ToFloat(codes[i]) * E8m0ToFloat(scales[i / kScaleGroup]);
    }
    out += dim;
  }
  return Status::Ok();
}

void TensorCount::Add(const TensorView& tensor) {
  ++tensors;
  bytes += tensor.bytes.size();
  if (tensor.dtype == DType::kF8E8M0) return;
  const int64_t elements = NumElements(tensor.shape);
  parameters += tensor.dtype == DType::kI8 ? 2 * elements : elements;
}

}  // namespace emberkv
