// Golden tensors and small models for tests: tests/data/golden (its README says what each file holds).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layout/cache_layout.h"
#include "model/model.h"
#include "weights/safetensors.h"

namespace emberkv::golden {

// One file of golden tensors. Accessors fail the test when a tensor is missing or of another type.
class File {
 public:
  explicit File(const std::string& relative_path);  // below tests/data/golden

  bool Has(const std::string& name) const { return file_->Find(name) != nullptr; }
  const TensorView& Tensor(const std::string& name) const;
  std::vector<int64_t> Shape(const std::string& name) const { return Tensor(name).shape; }
  const uint8_t* Bytes(const std::string& name) const { return Tensor(name).bytes.data(); }

  std::vector<float> Floats(const std::string& name) const;    // F32, BF16 or F64
  std::vector<int64_t> Ints(const std::string& name) const;    // I64, I32, I16, U8 or BOOL
  std::vector<uint8_t> Codes(const std::string& name) const;   // raw bytes
  std::string Metadata(const std::string& key) const;

 private:
  std::unique_ptr<SafetensorsFile> file_;
};

// A small model with everything its tests need, loaded once per process and config.
struct TinyModel {
  std::string name;
  ModelConfig config;
  CacheLayout layout;
  std::unique_ptr<Model> model;
  std::vector<int32_t> tokens;  // tokens.json
};

// `select_all`: the same checkpoint with top-k and candidate pool so large that everything is selected.
const TinyModel& Tiny(const std::string& name, bool select_all = false);

// Memory of one sequence, as an engine would own it.
class Sequence {
 public:
  Sequence(const TinyModel& tiny, std::vector<int32_t> tokens);

  SequenceState* state() { return &state_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  std::vector<uint8_t> GlobalRow(const KvSource& source, int64_t row) const;
  std::vector<uint8_t> IndexKeyRow(const KvSource& source, int64_t row) const;
  std::vector<uint8_t> WindowRow(int layer, int64_t pos) const;
  const std::vector<float>& tails() const { return tails_; }
  const std::vector<uint8_t>& windows() const { return windows_; }
  std::vector<uint8_t> AllPages() const;
  // Copies the global rows (whole pages) of the first `blocks` blocks.
  void CopyPagesFrom(const Sequence& other, int64_t blocks);

 private:
  const TinyModel& tiny_;
  std::vector<int32_t> tokens_;
  std::vector<std::vector<uint8_t>> pages_;
  std::vector<uint8_t*> writable_;
  std::vector<uint8_t> windows_;
  std::vector<float> tails_;
  SequenceState state_;
};

// Runs positions [begin, end) in pieces of `chunk` and returns the logits of the last.
std::vector<float> Run(const Model& model, Sequence* sequence, int64_t begin, int64_t end,
                       int64_t chunk, ThreadPool* pool);

// Largest and root-mean-square difference.
struct Difference {
  double max = 0;
  double rms = 0;
};
Difference Compare(const std::vector<float>& a, const std::vector<float>& b);

// Distance of two bf16 values in units of last place (sign-magnitude order).
int Bf16Distance(float a, float b);

// L2 norm of a - b over that of b, for rows of `width`: the largest over all rows.
double WorstRowError(const std::vector<float>& a, const std::vector<float>& b, size_t width);

}  // namespace emberkv::golden
