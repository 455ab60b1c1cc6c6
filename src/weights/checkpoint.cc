#include "weights/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "layout/cache_layout.h"
#include "weights/page_advice.h"
#include "weights/safetensors_header.h"

namespace emberkv {
namespace {

constexpr int64_t kScaleGroup = 32;

int64_t ScaleGroups(int64_t n) { return (n + kScaleGroup - 1) / kScaleGroup; }

// The first few of what may be a hundred thousand complaints of one kind, and their number.
class ProblemList {
 public:
  // Calls `describe` only if its text will be shown.
  template <class Describe>
  void Add(Describe&& describe) {
    if (count_ < kShown) shown_.push_back(describe());
    ++count_;
  }

  size_t count() const { return count_; }

  void AppendTo(std::vector<std::string>& out) const {
    out.insert(out.end(), shown_.begin(), shown_.end());
    if (count_ > kShown) out.push_back(fmt::format("and {} more of this kind", count_ - kShown));
  }

 private:
  static constexpr size_t kShown = 4;
  std::vector<std::string> shown_;
  size_t count_ = 0;
};

Status ToStatus(const std::string& what, std::initializer_list<const ProblemList*> lists) {
  size_t count = 0;
  std::vector<std::string> texts;
  for (const ProblemList* list : lists) {
    count += list->count();
    list->AppendTo(texts);
  }
  if (count == 0) return Status::Ok();
  return InvalidArgument(fmt::format("{} ({} problem{}): {}", what, count, count == 1 ? "" : "s",
                                     fmt::join(texts, "; ")));
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& dir, const ModelConfig& config) {
  // A config that no plan can be made from gives no inventory to compare with.
  EMBERKV_RETURN_IF_ERROR(MakeCacheLayout(config).status());
  EMBERKV_ASSIGN_OR_RETURN(const Inventory inventory, Inventory::Make(config));
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  EMBERKV_RETURN_IF_ERROR(checkpoint.OpenFiles());
  EMBERKV_RETURN_IF_ERROR(checkpoint.CheckAgainst(inventory));
  EMBERKV_RETURN_IF_ERROR(checkpoint.OpenEngramTables(config));
  return checkpoint;
}

Status Checkpoint::OpenFiles() {
  const Result<ShardIndex> index = ReadShardIndex(dir_ + "/" + kShardIndexName);
  if (!index.ok() && index.status().code() != StatusCode::kNotFound) return index.status();
  std::vector<std::string> names = {"model.safetensors"};
  if (index.ok()) names = index->shards;
  for (const std::string& name : names) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(dir_ + "/" + name);
    if (!index.ok() && file.status().code() == StatusCode::kNotFound) {
      return NotFound(fmt::format("{} has neither {} nor {}", dir_, kShardIndexName, name));
    }
    if (!file.ok()) return file.status();
    files_.push_back(std::move(*file));
    EMBERKV_ASSIGN_OR_RETURN(RandomAccessFile read_file, RandomAccessFile::Open(dir_ + "/" + name));
    read_files_.push_back(std::make_shared<const RandomAccessFile>(std::move(read_file)));
  }
  EMBERKV_RETURN_IF_ERROR(SortByName());
  return index.ok() ? CheckAgainst(*index) : Status::Ok();
}

Status Checkpoint::SortByName() {
  for (size_t file = 0; file < files_.size(); ++file) {
    for (const TensorView& tensor : files_[file].tensors()) by_name_.push_back({&tensor, file});
  }
  std::sort(by_name_.begin(), by_name_.end(), [](const Located& a, const Located& b) {
    return std::tie(a.tensor->name, a.file) < std::tie(b.tensor->name, b.file);
  });
  ProblemList twice;
  for (size_t i = 1; i < by_name_.size(); ++i) {
    const Located& a = by_name_[i - 1];
    const Located& b = by_name_[i];
    if (a.tensor->name != b.tensor->name) continue;
    twice.Add([&] {
      return fmt::format("{} is in {} and in {}", Quoted(a.tensor->name),
                         FileName(files_[a.file].path()), FileName(files_[b.file].path()));
    });
  }
  return ToStatus(dir_ + ": duplicate tensors", {&twice});
}

Status Checkpoint::CheckAgainst(const ShardIndex& index) const {
  ProblemList wrong;
  size_t matched = 0;
  for (const auto& [name, shard] : index.tensors) {
    const Located* found = Find(name);
    if (found != nullptr) ++matched;
    if (found != nullptr && found->file == shard) continue;
    wrong.Add([&, &tensor = name, &wanted = index.shards[shard]] {
      const std::string place =
          found == nullptr ? "nowhere" : "in " + FileName(files_[found->file].path());
      return fmt::format("{} should be in {} and is {}", Quoted(tensor), wanted, place);
    });
  }
  ProblemList unlisted;
  if (matched < by_name_.size()) {
    for (const Located& located : by_name_) {
      const std::string& name = located.tensor->name;
      const auto it = std::lower_bound(index.tensors.begin(), index.tensors.end(),
                                       std::pair<std::string, uint32_t>(name, 0));
      if (it != index.tensors.end() && it->first == name) continue;
      unlisted.Add([&] {
        return fmt::format("{} in {} is not listed", Quoted(name),
                           FileName(files_[located.file].path()));
      });
    }
  }
  return ToStatus(fmt::format("{}/{} and the shards disagree", dir_, kShardIndexName),
                  {&wrong, &unlisted});
}

Status Checkpoint::CheckAgainst(const Inventory& inventory) {
  summary_.num_files = static_cast<int>(files_.size());
  ProblemList unknown, mistyped, missing;
  const auto count = [&](TensorFamily family, const TensorView& tensor) {
    summary_.total.Add(tensor);
    summary_.by_family[static_cast<size_t>(family)].Add(tensor);
    summary_.by_dtype[static_cast<size_t>(tensor.dtype)].Add(tensor);
  };
  const auto report_missing = [&](const TensorSpec& spec) {
    missing.Add([&] { return "missing tensor " + Quoted(spec.name); });
  };
  // Both lists are sorted by name: one walk over the two.
  auto spec = inventory.tensors().begin();
  const auto end = inventory.tensors().end();
  for (const Located& located : by_name_) {
    const TensorView& tensor = *located.tensor;
    for (; spec != end && spec->name < tensor.name; ++spec) report_missing(*spec);
    if (spec != end && spec->name == tensor.name) {
      if (tensor.dtype != spec->dtype || tensor.shape != spec->shape) {
        mistyped.Add([&] {
          return fmt::format("tensor {} is {} {}; the config demands {} {}", Quoted(tensor.name),
                             DTypeName(tensor.dtype), ShapeText(tensor.shape),
                             DTypeName(spec->dtype), ShapeText(spec->shape));
        });
      }
      count(spec->family, tensor);
      ++spec;
    } else if (const std::optional<TensorFamily> family = UnusedFamilyOf(tensor.name)) {
      count(*family, tensor);
    } else {
      unknown.Add([&] {
        const std::string suggestion = inventory.Suggestion(tensor.name);
        return fmt::format("unknown tensor {} in {}{}", Quoted(tensor.name),
                           FileName(files_[located.file].path()),
                           suggestion.empty() ? "" : " (did you mean " + Quoted(suggestion) + "?)");
      });
    }
  }
  for (; spec != end; ++spec) report_missing(*spec);
  return ToStatus(dir_ + " does not fit its config", {&unknown, &mistyped, &missing});
}

Status Checkpoint::OpenEngramTables(const ModelConfig& config) {
  const auto locate = [&](const std::string& name, std::shared_ptr<const RandomAccessFile>& file,
                          uint64_t& offset) -> Status {
    const Located* located = Find(name);
    if (located == nullptr) return Internal(Quoted(name) + " vanished after the check");
    file = read_files_[located->file];
    offset = located->tensor->file_offset;
    return Status::Ok();
  };
  for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
    EngramTable table;
    table.layer_ = config.engram_layer_ids[i];
    table.num_rows_ = config.engram_num_embeddings[i];
    table.head_dim_ = config.engram_head_dim;
    table.groups_ = static_cast<int>(ScaleGroups(config.engram_head_dim));
    const std::string name = fmt::format("layers.{}.engram.embed", table.layer_);
    EMBERKV_RETURN_IF_ERROR(locate(name + ".weight", table.weight_file_, table.weight_offset_));
    EMBERKV_RETURN_IF_ERROR(locate(name + ".scale", table.scale_file_, table.scale_offset_));
    engram_tables_.push_back(std::move(table));
  }
  return Status::Ok();
}

std::vector<Checkpoint::Located>::const_iterator Checkpoint::FirstNotBefore(
    std::string_view name) const {
  return std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [](const Located& a, std::string_view wanted) { return a.tensor->name < wanted; });
}

const Checkpoint::Located* Checkpoint::Find(std::string_view name) const {
  const auto it = FirstNotBefore(name);
  return it != by_name_.end() && it->tensor->name == name ? &*it : nullptr;
}

Result<const TensorView*> Checkpoint::Tensor(std::string_view name, DType dtype) const {
  const Located* located = Find(name);
  if (located == nullptr) return Internal("no tensor " + Quoted(name));
  if (located->tensor->dtype != dtype) {
    return Internal(fmt::format("tensor {} is {}, used as {}", Quoted(name),
                                DTypeName(located->tensor->dtype), DTypeName(dtype)));
  }
  return located->tensor;
}

Result<Fp8Matrix> Checkpoint::Fp8(std::string_view name) const {
  EMBERKV_ASSIGN_OR_RETURN(const TensorView* weight,
                           Tensor(std::string(name) + ".weight", DType::kF8E4M3));
  EMBERKV_ASSIGN_OR_RETURN(const TensorView* scale,
                           Tensor(std::string(name) + ".scale", DType::kF8E8M0));
  const std::vector<int64_t>& shape = weight->shape;
  if (shape.size() != 2 ||
      scale->shape != std::vector<int64_t>{ScaleGroups(shape[0]), ScaleGroups(shape[1])}) {
    return Internal(fmt::format("{} is not scaled by 32x32 tiles", Quoted(name)));
  }
  return Fp8Matrix{shape[0], shape[1], weight->bytes.data(), scale->bytes.data()};
}

Result<Fp4Matrix> Checkpoint::Fp4(std::string_view name) const {
  EMBERKV_ASSIGN_OR_RETURN(const TensorView* weight,
                           Tensor(std::string(name) + ".weight", DType::kI8));
  EMBERKV_ASSIGN_OR_RETURN(const TensorView* scale,
                           Tensor(std::string(name) + ".scale", DType::kF8E8M0));
  const std::vector<int64_t>& shape = weight->shape;
  if (shape.size() != 2 ||
      scale->shape != std::vector<int64_t>{shape[0], ScaleGroups(2 * shape[1])}) {
    return Internal(fmt::format("{} is not scaled by row and 32 columns", Quoted(name)));
  }
  return Fp4Matrix{shape[0], 2 * shape[1], weight->bytes.data(), scale->bytes.data()};
}

Status Checkpoint::ReadTensor(std::string_view name, std::span<uint8_t> out) const {
  const Located* located = Find(name);
  if (located == nullptr) return Internal("no tensor " + Quoted(name));
  return read_files_[located->file]
      ->ReadAt(located->tensor->file_offset, out)
      .WithContext("tensor " + Quoted(name));
}

Result<Fp4Matrix> Checkpoint::ReadFp4(std::string_view name, std::vector<uint8_t>* buffer) const {
  EMBERKV_ASSIGN_OR_RETURN(Fp4Matrix matrix, Fp4(name));
  const auto code_bytes = static_cast<size_t>(matrix.rows * matrix.cols / 2);
  const auto scale_bytes = static_cast<size_t>(matrix.rows * ScaleGroups(matrix.cols));
  buffer->resize(code_bytes + scale_bytes);
  const std::span<uint8_t> bytes(*buffer);
  const std::string tensor(name);
  EMBERKV_RETURN_IF_ERROR(ReadTensor(tensor + ".weight", bytes.first(code_bytes)));
  EMBERKV_RETURN_IF_ERROR(ReadTensor(tensor + ".scale", bytes.subspan(code_bytes)));
  matrix.packed = bytes.data();
  matrix.scales = bytes.data() + code_bytes;
  return matrix;
}

void Checkpoint::ReadFp4Ahead(std::string_view name) const {
  for (const char* part : {".weight", ".scale"}) {
    const Located* located = Find(std::string(name) + part);
    if (located != nullptr) ReadPagesAhead(located->tensor->bytes);
  }
}

void Checkpoint::Release(std::string_view prefix) const {
  for (auto it = FirstNotBefore(prefix); it != by_name_.end() && it->tensor->name.starts_with(prefix); ++it) {
    AdvisePages(it->tensor->bytes, MADV_DONTNEED);
  }
}

Result<Bf16Tensor> Checkpoint::Bf16(std::string_view name) const {
  EMBERKV_ASSIGN_OR_RETURN(const TensorView* tensor, Tensor(name, DType::kBF16));
  return Bf16Tensor{tensor->shape, tensor->bytes.data()};
}

Result<F32Tensor> Checkpoint::F32(std::string_view name) const {
  EMBERKV_ASSIGN_OR_RETURN(const TensorView* tensor, Tensor(name, DType::kF32));
  return F32Tensor{tensor->shape, tensor->bytes.data()};
}

}  // namespace emberkv
