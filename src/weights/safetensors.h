// One safetensors file, mapped read-only: its tensors' names, types, shapes and bytes.
//
// The header is untrusted: every length, name, type, shape and offset is checked before a view of
// it is handed out, and the tensors must cover the data section exactly, without overlap or hole.
// A SafetensorsFile owns the mapping; views point into it and live as long as it does (moving the
// file object keeps them valid). Immutable after opening: any thread may read. Data may be
// unaligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"

namespace emberkv {

enum class DType { kF64, kF32, kBF16, kF16, kF8E4M3, kF8E8M0, kI64, kI32, kI16, kI8, kU8, kBool };

inline constexpr int kNumDTypes = static_cast<int>(DType::kBool) + 1;

// As spelled in the file: "F8_E4M3", ...
const char* DTypeName(DType dtype);
size_t DTypeBytes(DType dtype);

struct TensorView {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
  uint64_t file_offset = 0;  // of the first byte, in the file
};

// What a safetensors file says, over bytes owned by the caller.
struct SafetensorsContents {
  std::vector<TensorView> tensors;  // in the order of their data
  std::vector<uint32_t> by_name;    // indexes into `tensors`, sorted by name
  std::map<std::string, std::string> metadata;
};

// Parses and checks a whole file in memory; `path` only names it in errors.
Result<SafetensorsContents> ParseSafetensors(std::span<const uint8_t> file,
                                             const std::string& path);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> Open(const std::string& path);

  // nullptr when the file has no such tensor.
  const TensorView* Find(std::string_view name) const;
  const std::vector<TensorView>& tensors() const { return contents_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  const std::string& path() const { return file_.path(); }
  uint64_t size_bytes() const { return file_.bytes().size(); }

 private:
  SafetensorsFile(MappedFile file, SafetensorsContents contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}

  MappedFile file_;
  SafetensorsContents contents_;
};

// "[24, 20480]"
std::string ShapeText(std::span<const int64_t> shape);

// The error of CopyTensor when the type is not `expected`; OK otherwise.
Status CheckElementType(const TensorView& tensor, DType expected, size_t element_bytes);

// The elements of a tensor, aligned.
template <class T>
Result<std::vector<T>> CopyTensor(const TensorView& tensor, DType expected) {
  EMBERKV_RETURN_IF_ERROR(CheckElementType(tensor, expected, sizeof(T)));
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace emberkv
