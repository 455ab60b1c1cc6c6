// A checkpoint folder, opened and checked against its config before anything of it is used.
//
// Open reads model.safetensors.index.json and the shards it names, or else model.safetensors, and
// compares every tensor with the Inventory: a missing, unknown, mistyped, misshapen, misplaced or
// duplicate tensor is an error that names it. The files stay mapped; nothing is copied, and pages
// become resident only as they are used. Engram tables are read row by row, and matrices that are
// used from time to time one by one, and never become resident. A Checkpoint owns mappings and
// descriptors: views live as long as it does, wherever it is moved. Immutable after opening: any
// thread may read. View bytes may be unaligned.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "layout/model_config.h"
#include "weights/inventory.h"
#include "weights/safetensors.h"
#include "weights/shard_index.h"

namespace emberkv {

struct Fp8Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* codes = nullptr;   // e4m3 [rows][cols]
  const uint8_t* scales = nullptr;  // e8m0 [ceil(rows/32)][ceil(cols/32)], one per 32x32 tile
};

struct Fp4Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* packed = nullptr;  // e2m1 [rows][cols/2], the even column in the low nibble
  const uint8_t* scales = nullptr;  // e8m0 [rows][cols/32]
};

struct Bf16Tensor {
  std::vector<int64_t> shape;
  const uint8_t* bytes = nullptr;

  int64_t size() const;
  // Elements begin, begin + 1, ... in row-major order; the range must lie within the tensor.
  void Read(int64_t begin, std::span<float> out) const;
  std::vector<float> ToFloats() const;
};

struct F32Tensor {
  std::vector<int64_t> shape;
  const uint8_t* bytes = nullptr;

  int64_t size() const;
  void Read(int64_t begin, std::span<float> out) const;
  std::vector<float> ToFloats() const;
};

// The rows of one Engram table, read from disk when asked for.
class EngramTable {
 public:
  int layer() const { return layer_; }
  int64_t num_rows() const { return num_rows_; }
  int head_dim() const { return head_dim_; }
  uint64_t size_bytes() const {  // codes and scales, on disk
    return static_cast<uint64_t>(num_rows_) * static_cast<uint64_t>(head_dim_ + groups_);
  }

  // out[i * head_dim ...] = row row_ids[i], dequantized. Fails on an id outside [0, num_rows),
  // which leaves `out` unspecified, and on I/O errors.
  Status ReadRows(std::span<const int64_t> row_ids, float* out) const;

 private:
  friend class Checkpoint;
  EngramTable() = default;

  int layer_ = 0;
  int64_t num_rows_ = 0;
  int head_dim_ = 0;
  int groups_ = 0;  // scales per row
  std::shared_ptr<const RandomAccessFile> weight_file_;
  std::shared_ptr<const RandomAccessFile> scale_file_;
  uint64_t weight_offset_ = 0;
  uint64_t scale_offset_ = 0;
};

struct TensorCount {
  int64_t tensors = 0;
  uint64_t bytes = 0;
  int64_t parameters = 0;  // values: two per byte of FP4; scales are none

  void Add(const TensorView& tensor);
};

struct CheckpointSummary {
  int num_files = 0;
  TensorCount total;
  std::array<TensorCount, kNumTensorFamilies> by_family;  // by TensorFamily
  std::array<TensorCount, kNumDTypes> by_dtype;           // by DType

  const TensorCount& family(TensorFamily f) const { return by_family[static_cast<size_t>(f)]; }
  const TensorCount& dtype(DType d) const { return by_dtype[static_cast<size_t>(d)]; }
};

class Checkpoint {
 public:
  static Result<Checkpoint> Open(const std::string& dir, const ModelConfig& config);

  // Views by inventory name; matrices without their ".weight". After Open these succeed for every
  // name and kind of the inventory; anything else is an internal error.
  Result<Fp8Matrix> Fp8(std::string_view name) const;
  Result<Fp4Matrix> Fp4(std::string_view name) const;
  Result<Bf16Tensor> Bf16(std::string_view name) const;
  Result<F32Tensor> F32(std::string_view name) const;

  // Reads the matrix into `buffer`, which keeps its memory from call to call, and views it there.
  // Errors name the tensor and its file, also when that was cut after Open.
  Result<Fp4Matrix> ReadFp4(std::string_view name, std::vector<uint8_t>* buffer) const;
  // Lets the system read the matrix in the background, into its own cache.
  void ReadFp4Ahead(std::string_view name) const;

  // What the views of all tensors whose names begin so made resident is not needed soon. They stay
  // valid: what is read again comes from the system's cache or the disk.
  void Release(std::string_view prefix) const;

  // In the order of engram_layer_ids.
  const std::vector<EngramTable>& engram_tables() const { return engram_tables_; }

  const CheckpointSummary& summary() const { return summary_; }
  const std::string& dir() const { return dir_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  Checkpoint() = default;

  struct Located {
    const TensorView* tensor = nullptr;
    size_t file = 0;  // index into files_
  };

  Status OpenFiles();
  Status SortByName();
  Status CheckAgainst(const ShardIndex& index) const;
  Status CheckAgainst(const Inventory& inventory);
  Status OpenEngramTables(const ModelConfig& config);
  std::vector<Located>::const_iterator FirstNotBefore(std::string_view name) const;
  const Located* Find(std::string_view name) const;
  Status ReadTensor(std::string_view name, std::span<uint8_t> out) const;
  Result<const TensorView*> Tensor(std::string_view name, DType dtype) const;

  std::string dir_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::shared_ptr<const RandomAccessFile>> read_files_;  // the same, for positioned reads
  std::vector<Located> by_name_;  // all files' tensors, sorted by name
  std::vector<EngramTable> engram_tables_;
  CheckpointSummary summary_;
};

}  // namespace emberkv
