#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "linear/multiply.h"
#include "model/attention_layer.h"
#include "model/engram.h"
#include "model/global_rows.h"
#include "model/hyper_connection.h"
#include "model/model_weights.h"
#include "model/moe.h"
#include "model/row_math.h"

namespace emberkv {

Model::Model(const ModelConfig& config, const CacheLayout& layout) : config_(config), layout_(layout) {}

Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::Load(std::shared_ptr<const Checkpoint> checkpoint,
                                           const ModelConfig& config, const CacheLayout& layout,
                                           std::vector<int32_t> token_map,
                                           const LoadOptions& options) {
  std::unique_ptr<Model> model(new Model(config, layout));
  EMBERKV_ASSIGN_OR_RETURN(
      ModelWeights weights,
      LoadModelWeights(*checkpoint, config, layout, std::move(token_map), options));
  model->weights_ = std::make_unique<ModelWeights>(std::move(weights));
  model->checkpoint_ = std::move(checkpoint);
  return model;
}

size_t Model::weight_bytes() const {
  const uint64_t streamed = weights_->streamed ? weights_->streamed->stats().kept_bytes : 0;
  return weights_->bytes() + static_cast<size_t>(streamed);
}

ExpertStats Model::expert_stats() const {
  if (weights_->streamed) return weights_->streamed->stats();
  ExpertStats stats;
  stats.total_bytes = RoutedExpertBytes(config_) * static_cast<uint64_t>(config_.n_routed_experts) *
                      weights_->layers.size();
  stats.kept_bytes = stats.most_bytes = stats.total_bytes;
  return stats;
}

Status Model::CheckTokens(const Step& step) const {
  for (const StepRow& row : step.rows) {
    const int32_t token = step.spans[static_cast<size_t>(row.span)].sequence->tokens[row.pos];
    if (token < 0 || token >= config_.vocab_size) {
      return InvalidArgument(fmt::format("token id at position {} is {}; the vocabulary has ids 0 to {}",
                                         row.pos, token, config_.vocab_size - 1));
    }
    if (weights_->engram_hash && !weights_->engram_hash->Contains(token)) {
      return InvalidArgument(
          fmt::format("token id {} at position {} has no entry in the token map", token, row.pos));
    }
  }
  return Status::Ok();
}

Status Model::Begin(Step* step) const {
  step->rows.clear();
  for (size_t i = 0; i < step->spans.size(); ++i) {
    for (int64_t pos = step->spans[i].begin; pos < step->spans[i].end; ++pos) {
      step->rows.push_back({static_cast<int>(i), pos});
    }
  }
  EMBERKV_RETURN_IF_ERROR(CheckTokens(*step));
  const size_t rows = step->rows.size();
  const size_t n = static_cast<size_t>(config_.hc_mult);
  const size_t hidden = static_cast<size_t>(config_.hidden_size);
  const size_t rope_dim = static_cast<size_t>(config_.qk_rope_head_dim);
  step->stream.resize(rows * n * hidden);
  step->pre.assign(rows * n, 0.0f);
  step->scratch.plain_angles.resize(rows * rope_dim);
  step->scratch.compressed_angles.resize(rows * rope_dim);
  step->pool->ParallelFor(static_cast<int64_t>(rows), 16, [&](int64_t begin, int64_t end, int) {
    for (size_t r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      const StepRow& row = step->rows[r];
      const int32_t token = step->spans[static_cast<size_t>(row.span)].sequence->tokens[row.pos];
      float* stream = step->stream.data() + r * n * hidden;
      weights_->embed.Read(int64_t{token} * config_.hidden_size, {stream, hidden});
      for (size_t i = 1; i < n; ++i) std::copy_n(stream, hidden, stream + i * hidden);
      step->pre[r * n] = 1.0f;
      weights_->plain_rope.CosSin(row.pos, step->scratch.plain_angles.data() + r * rope_dim);
      weights_->compressed_rope.CosSin(row.pos, step->scratch.compressed_angles.data() + r * rope_dim);
    }
  });
  return Status::Ok();
}

// Keeps the rows the decoder needs: those at or after their sequence's decoder_begin.
void Model::DropEncoderRows(Step* step) const {
  const size_t n = static_cast<size_t>(config_.hc_mult);
  const size_t hidden = static_cast<size_t>(config_.hidden_size);
  const size_t rope_dim = static_cast<size_t>(config_.qk_rope_head_dim);
  size_t kept = 0;
  const auto move = [&](std::vector<float>* values, size_t from, size_t width) {
    std::copy_n(values->data() + from * width, width, values->data() + kept * width);
  };
  for (size_t r = 0; r < step->rows.size(); ++r) {
    const StepRow row = step->rows[r];
    if (row.pos < step->spans[static_cast<size_t>(row.span)].sequence->decoder_begin) continue;
    if (kept != r) {
      step->rows[kept] = row;
      move(&step->stream, r, n * hidden);
      move(&step->pre, r, n);
      move(&step->scratch.x, r, hidden);
      move(&step->scratch.plain_angles, r, rope_dim);
      move(&step->scratch.compressed_angles, r, rope_dim);
    }
    ++kept;
  }
  step->rows.resize(kept);
}

Status Model::RunLayer(int layer, Step* step) const {
  const LayerPlan& plan = layout_.layers[static_cast<size_t>(layer)];
  const LayerWeights& w = weights_->layers[static_cast<size_t>(layer)];
  if (plan.engram >= 0) {
    const StageTimer timer(step->stage_times, Stage::kEngram);
    EMBERKV_RETURN_IF_ERROR(ApplyEngram(*w.engram, *weights_->engram_hash,
                                        checkpoint_->engram_tables()[static_cast<size_t>(plan.engram)],
                                        plan.engram, config_, step));
  }
  {
    const StageTimer timer(step->stage_times, Stage::kMixes);
    SublayerInput(w.attn_norm, config_, step);
  }
  if (plan.role == LayerRole::kFull) {
    // Every row feeds the global KV, also those the decoder then drops.
    const StageTimer timer(step->stage_times, Stage::kGlobalRows);
    EMBERKV_RETURN_IF_ERROR(WriteGlobalRows(*w.attn.compressor, weights_->compressed_rope,
                                            layout_.sources[static_cast<size_t>(plan.kv_source)],
                                            config_, layout_, step));
  }
  if (layout_.decoder_begin == layer) DropEncoderRows(step);
  if (step->rows.empty()) return Status::Ok();
  {
    const StageTimer timer(step->stage_times, Stage::kMixes);
    ComputeMixes(w.hc_attn, config_, step);
  }
  EMBERKV_RETURN_IF_ERROR(RunAttention(plan, w.attn, config_, layout_, step));
  {
    const StageTimer timer(step->stage_times, Stage::kMixes);
    FoldOutput(config_, step);
    ComputeMixes(w.hc_ffn, config_, step);
    SublayerInput(w.ffn_norm, config_, step);
  }
  {
    const StageTimer timer(step->stage_times, Stage::kExperts);
    if (weights_->streamed) {
      EMBERKV_RETURN_IF_ERROR(RunStreamedMoe(w.moe, weights_->streamed.get(), layer, config_, step));
    } else {
      RunMoe(w.moe, config_, step);
    }
  }
  const StageTimer timer(step->stage_times, Stage::kMixes);
  FoldOutput(config_, step);
  for (const StepRow& row : step->rows) ++step->spans[static_cast<size_t>(row.span)].token_layers;
  return Status::Ok();
}

void Model::Finish(Step* step) const {
  const size_t n = static_cast<size_t>(config_.hc_mult);
  const size_t hidden = static_cast<size_t>(config_.hidden_size);
  std::vector<float>& x = step->scratch.x;
  x.clear();
  const RowMath& math = ActiveRowMath();
  int outputs = 0;
  for (size_t r = 0; r < step->rows.size(); ++r) {
    const StepSpan& span = step->spans[static_cast<size_t>(step->rows[r].span)];
    if (!span.want_logits || step->rows[r].pos != span.end - 1) continue;
    x.resize(x.size() + hidden);
    float* row = x.data() + static_cast<size_t>(outputs++) * hidden;
    math.collapse(step->stream.data() + r * n * hidden, step->pre.data() + r * n, config_.hc_mult,
                  config_.hidden_size, row);
    math.rms_norm(row, weights_->norm.data(), static_cast<float>(config_.rms_norm_eps),
                  config_.hidden_size, row);
  }
  const size_t vocab = static_cast<size_t>(config_.vocab_size);
  step->logits.resize(static_cast<size_t>(outputs) * vocab);
  Multiply(weights_->head, x.data(), hidden, outputs, step->logits.data(), vocab, Rounding::kNone,
           *step->pool);
}

Status Model::Forward(Step* step) const {
  {
    const StageTimer timer(step->stage_times, Stage::kEmbedding);
    EMBERKV_RETURN_IF_ERROR(Begin(step));
  }
  for (int layer = 0; layer < layout_.num_layers() && !step->rows.empty(); ++layer) {
    EMBERKV_RETURN_IF_ERROR(RunLayer(layer, step));
    if (step->after_layer) step->after_layer(layer, *step);
  }
  const StageTimer timer(step->stage_times, Stage::kHead);
  Finish(step);
  return Status::Ok();
}

}  // namespace emberkv
