#include "weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "weights/safetensors_header.h"

namespace emberkv {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = uint64_t{512} << 20;

struct DTypeSpelling {
  DType dtype;
  const char* name;
  size_t bytes;
};

constexpr std::array<DTypeSpelling, kNumDTypes> kDTypes = {{
    {DType::kF64, "F64", 8},
    {DType::kF32, "F32", 4},
    {DType::kBF16, "BF16", 2},
    {DType::kF16, "F16", 2},
    {DType::kF8E4M3, "F8_E4M3", 1},
    {DType::kF8E8M0, "F8_E8M0", 1},
    {DType::kI64, "I64", 8},
    {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},
    {DType::kI8, "I8", 1},
    {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},
}};

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeSpelling& spelling : kDTypes) {
    if (spelling.name == name) return spelling.dtype;
  }
  return std::nullopt;
}

// Bytes of a tensor; nullopt when the product does not fit.
std::optional<uint64_t> TensorBytes(std::span<const int64_t> shape, DType dtype) {
  uint64_t bytes = DTypeBytes(dtype);
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) return std::nullopt;
  }
  return bytes;
}

// A header entry checked by itself: type, shape and extent agree.
Result<TensorView> CheckEntry(HeaderEntry entry, std::span<const uint8_t> data,
                              uint64_t data_begin) {
  const std::optional<DType> dtype = ParseDType(entry.dtype);
  if (!dtype) return DataLoss(fmt::format("unknown dtype {}", Quoted(entry.dtype)));
  const std::optional<uint64_t> bytes = TensorBytes(entry.shape, *dtype);
  if (!bytes) {
    return DataLoss(fmt::format("shape {} overflows 64 bits", ShapeText(entry.shape)));
  }
  if (entry.begin > entry.end) {
    return DataLoss(fmt::format("data_offsets [{}, {}] run backwards", entry.begin, entry.end));
  }
  if (entry.end > data.size()) {
    return DataLoss(
        fmt::format("data_offsets [{}, {}] pass the end of the file, which has {} bytes "
                    "of data: truncated or corrupt",
                    entry.begin, entry.end, data.size()));
  }
  if (entry.end - entry.begin != *bytes) {
    return DataLoss(fmt::format("data_offsets [{}, {}] hold {} bytes; {} {} needs {}", entry.begin,
                                entry.end, entry.end - entry.begin, DTypeName(*dtype),
                                ShapeText(entry.shape), *bytes));
  }
  TensorView tensor;
  tensor.name = std::move(entry.name);
  tensor.dtype = *dtype;
  tensor.shape = std::move(entry.shape);
  tensor.bytes = data.subspan(entry.begin, *bytes);
  tensor.file_offset = data_begin + entry.begin;
  return tensor;
}

// Sorts by place in the file; the tensors must tile the data section.
Status CheckTiling(std::vector<TensorView>& tensors, uint64_t data_begin, uint64_t file_end) {
  const auto place = [](const TensorView& t) {
    return std::pair(t.file_offset, t.file_offset + t.bytes.size());
  };
  std::sort(tensors.begin(), tensors.end(),
            [&](const TensorView& a, const TensorView& b) { return place(a) < place(b); });
  uint64_t at = data_begin;
  for (const TensorView& tensor : tensors) {
    const auto [begin, end] = place(tensor);
    if (begin != at) {
      return DataLoss(fmt::format(
          "tensor {}: data begins at {}, {} (expected {})", Quoted(tensor.name), begin - data_begin,
          begin < at ? "overlapping the tensor before it" : "after a hole", at - data_begin));
    }
    at = end;
  }
  if (at != file_end) {
    return DataLoss(fmt::format("{} bytes after the last tensor's data", file_end - at));
  }
  return Status::Ok();
}

Result<SafetensorsContents> Parse(std::span<const uint8_t> file) {
  if (file.size() < kLengthBytes) {
    return DataLoss(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  }
  uint64_t header_bytes = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t{file[i]} << (8 * i);
  if (header_bytes > kMaxHeaderBytes) {
    return DataLoss(fmt::format("header length {} is absurd (at most {} bytes): not safetensors?",
                                header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > file.size() - kLengthBytes) {
    return DataLoss(fmt::format("header length {} passes the end of the file ({} bytes)",
                                header_bytes, file.size()));
  }
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              header_bytes);
  EMBERKV_ASSIGN_OR_RETURN(HeaderEntries header, ParseHeaderJson(json));

  const uint64_t data_begin = kLengthBytes + header_bytes;
  SafetensorsContents contents;
  contents.metadata = std::move(header.metadata);
  contents.tensors.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    const std::string context = "tensor " + Quoted(entry.name);
    Result<TensorView> tensor = CheckEntry(std::move(entry), file.subspan(data_begin), data_begin);
    if (!tensor.ok()) return tensor.status().WithContext(context);
    contents.tensors.push_back(std::move(*tensor));
  }
  EMBERKV_RETURN_IF_ERROR(CheckTiling(contents.tensors, data_begin, file.size()));

  const std::vector<TensorView>& tensors = contents.tensors;
  std::vector<uint32_t>& by_name = contents.by_name;
  by_name.resize(tensors.size());
  std::iota(by_name.begin(), by_name.end(), 0u);
  std::sort(by_name.begin(), by_name.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  for (size_t i = 1; i < by_name.size(); ++i) {
    const std::string& name = tensors[by_name[i]].name;
    if (tensors[by_name[i - 1]].name == name) {
      return DataLoss(fmt::format("tensor {} appears twice", Quoted(name)));
    }
  }
  return contents;
}

}  // namespace

const char* DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
size_t DTypeBytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsContents> ParseSafetensors(std::span<const uint8_t> file,
                                             const std::string& path) {
  Result<SafetensorsContents> contents = Parse(file);
  if (!contents.ok()) return contents.status().WithContext(path);
  return contents;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  EMBERKV_ASSIGN_OR_RETURN(SafetensorsContents contents, ParseSafetensors(file.bytes(), path));
  return SafetensorsFile(std::move(file), std::move(contents));
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto& by_name = contents_.by_name;
  const auto it = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [&](uint32_t i, std::string_view wanted) { return contents_.tensors[i].name < wanted; });
  if (it == by_name.end() || contents_.tensors[*it].name != name) return nullptr;
  return &contents_.tensors[*it];
}

Status CheckElementType(const TensorView& tensor, DType expected, size_t element_bytes) {
  if (tensor.dtype != expected) {
    return InvalidArgument(fmt::format("tensor {} is {}, expected {}", Quoted(tensor.name),
                                       DTypeName(tensor.dtype), DTypeName(expected)));
  }
  if (element_bytes != DTypeBytes(expected)) {
    return Internal(fmt::format("{} elements have {} bytes, not {}", DTypeName(expected),
                                DTypeBytes(expected), element_bytes));
  }
  return Status::Ok();
}

}  // namespace emberkv
