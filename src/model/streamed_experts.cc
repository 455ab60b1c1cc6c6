#include "model/streamed_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <utility>

namespace emberkv {
namespace {

constexpr std::array<const char*, 3> kMatrices = {"w1", "w2", "w3"};

std::string MatrixName(int layer, int expert, const char* matrix) {
  return fmt::format("layers.{}.ffn.experts.{}.{}", layer, expert, matrix);
}

uint64_t PackedFp4Bytes(int rows, int cols) {
  const auto panels = static_cast<uint64_t>((rows + kPanelRows - 1) / kPanelRows);
  const auto blocks = static_cast<uint64_t>((cols + kBlockK - 1) / kBlockK);
  return panels * blocks * (BlockBytes(WeightKind::kFp4) + BlockScaleBytes(WeightKind::kFp4));
}

Result<PackedMatrix> ReadMatrix(const Checkpoint& checkpoint, const std::string& name,
                                std::vector<uint8_t>* buffer) {
  EMBERKV_ASSIGN_OR_RETURN(const Fp4Matrix m, checkpoint.ReadFp4(name, buffer));
  const uint8_t* end = m.scales + m.rows * (m.cols / kBlockK);
  if (std::find(m.scales, end, 0xff) != end) return NotFinite(name);
  return PackedMatrix::FromFp4(static_cast<int>(m.rows), static_cast<int>(m.cols), m.packed, m.scales);
}

}  // namespace

uint64_t RoutedExpertBytes(const ModelConfig& config) {
  return 2 * PackedFp4Bytes(config.moe_intermediate_size, config.hidden_size) +
         PackedFp4Bytes(config.hidden_size, config.moe_intermediate_size);
}

Status NotFinite(const std::string& name) {
  return DataLoss(fmt::format("tensor {} holds a NaN or an infinity; weights must be finite", name));
}

Result<std::vector<ExpertWeights>> ReadExperts(const Checkpoint& checkpoint, int layer,
                                               std::span<const int> experts, ThreadPool* pool) {
  std::vector<ExpertWeights> read(experts.size());
  std::vector<Status> results(experts.size() * kMatrices.size());
  std::vector<std::vector<uint8_t>> buffers(static_cast<size_t>(pool->num_threads()));
  pool->ParallelFor(static_cast<int64_t>(results.size()), 1, [&](int64_t begin, int64_t end, int thread) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      ExpertWeights& expert = read[i / kMatrices.size()];
      PackedMatrix* const targets[] = {&expert.w1, &expert.w2, &expert.w3};
      const size_t part = i % kMatrices.size();
      const std::string name = MatrixName(layer, experts[i / kMatrices.size()], kMatrices[part]);
      try {
        Result<PackedMatrix> matrix = ReadMatrix(checkpoint, name, &buffers[static_cast<size_t>(thread)]);
        results[i] = matrix.status();
        if (matrix.ok()) *targets[part] = std::move(matrix).value();
      } catch (const std::exception& error) {  // out of memory: an error that names the tensor
        results[i] = ResourceExhausted(error.what()).WithContext("tensor " + name);
      }
    }
  });
  for (const Status& result : results) EMBERKV_RETURN_IF_ERROR(result);
  return read;
}

StreamedExperts::StreamedExperts(const Checkpoint& checkpoint, const ModelConfig& config,
                                 uint64_t budget_bytes)
    : checkpoint_(checkpoint),
      experts_per_layer_(config.n_routed_experts),
      expert_bytes_(RoutedExpertBytes(config)),
      most_kept_(std::max<uint64_t>(budget_bytes / expert_bytes_, kTakenAtOnce) - kTakenAtOnce),
      slots_(static_cast<size_t>(config.num_hidden_layers) * static_cast<size_t>(config.n_routed_experts)) {}

Result<std::vector<StreamedExperts::Expert>> StreamedExperts::Take(int layer, std::span<const int> experts,
                                                                   ThreadPool* pool) {
  std::vector<Expert> taken(experts.size());
  std::vector<int> missing;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < experts.size(); ++i) {
      const Slot& slot = slots_[SlotOf(layer, experts[i])];
      taken[i] = slot.kept;
      if (slot.kept == nullptr) {
        missing.push_back(experts[i]);
      } else {
        recency_.splice(recency_.begin(), recency_, slot.used);
      }
    }
    uses_ += experts.size();
    reads_ += missing.size();
  }
  if (missing.empty()) return taken;
  EMBERKV_ASSIGN_OR_RETURN(std::vector<ExpertWeights> read, ReadExperts(checkpoint_, layer, missing, pool));
  auto next = read.begin();
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < experts.size(); ++i) {
    if (taken[i] != nullptr) continue;
    taken[i] = std::make_shared<const ExpertWeights>(std::move(*next++));
    Keep(SlotOf(layer, experts[i]), taken[i]);
  }
  return taken;
}

void StreamedExperts::Keep(size_t index, const Expert& expert) {
  Slot& slot = slots_[index];
  if (slot.kept != nullptr || most_kept_ == 0) return;  // another thread may have read it too
  if (recency_.size() == most_kept_) {
    slots_[recency_.back()].kept.reset();
    recency_.pop_back();
  }
  recency_.push_front(index);
  slot = {expert, recency_.begin()};
}

void StreamedExperts::ReadAhead(int layer, std::span<const int> experts) const {
  std::vector<int> missing;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(experts.begin(), experts.end(), std::back_inserter(missing),
                 [&](int expert) { return slots_[SlotOf(layer, expert)].kept == nullptr; });
  }
  for (const int expert : missing) {
    for (const char* matrix : kMatrices) checkpoint_.ReadFp4Ahead(MatrixName(layer, expert, matrix));
  }
}

ExpertStats StreamedExperts::stats() const {
  ExpertStats stats;
  stats.is_streamed = true;
  stats.total_bytes = slots_.size() * expert_bytes_;
  stats.most_bytes = std::min(stats.total_bytes, (most_kept_ + kTakenAtOnce) * expert_bytes_);
  const std::lock_guard lock(mutex_);
  stats.kept_bytes = recency_.size() * expert_bytes_;
  stats.uses = uses_;
  stats.reads = reads_;
  return stats;
}

}  // namespace emberkv
