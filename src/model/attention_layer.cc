#include "model/attention_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "attention/attention_shares.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"
#include "linear/multiply.h"
#include "model/row_math.h"

namespace emberkv {
namespace {

constexpr int kRowsPerTask = 16;

class AttentionLayer {
 public:
  AttentionLayer(const LayerPlan& plan, const AttentionWeights& weights, const ModelConfig& config,
                 const CacheLayout& layout, Step* step)
      : plan_(plan),
        w_(weights),
        config_(config),
        layout_(layout),
        step_(step),
        s_(step->scratch),
        angles_(plan.ratio > 0 ? s_.compressed_angles.data() : s_.plain_angles.data()) {}

  Status Run() {
    {
      const StageTimer timer(step_->stage_times, Stage::kProjections);
      ProjectQueries();
      EMBERKV_RETURN_IF_ERROR(ComputeWindowRows());
    }
    if (w_.indexer) {
      const StageTimer timer(step_->stage_times, Stage::kIndex);
      Select();
    }
    {
      const StageTimer timer(step_->stage_times, Stage::kAttention);
      Attend();
      StoreWindowRows();
    }
    const StageTimer timer(step_->stage_times, Stage::kProjections);
    ProjectOutput();
    return Status::Ok();
  }

 private:
  int rows() const { return step_->num_rows(); }
  size_t hidden() const { return static_cast<size_t>(config_.hidden_size); }
  size_t head_dim() const { return static_cast<size_t>(config_.head_dim); }
  size_t q_size() const { return static_cast<size_t>(config_.num_attention_heads) * head_dim(); }
  int rope_dim() const { return config_.qk_rope_head_dim; }
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }
  const float* angles(int64_t row) const { return angles_ + row * rope_dim(); }
  const StepRow& row(int64_t r) const { return step_->rows[static_cast<size_t>(r)]; }
  const StepSpan& span(int64_t r) const { return step_->spans[static_cast<size_t>(row(r).span)]; }

  // First position that a query of this layer may see through the window of `sequence`.
  int64_t WindowStart(const SequenceState& sequence) const {
    return plan_.layer < layout_.encoder_layers() ? sequence.encoder_begin : sequence.decoder_begin;
  }
  uint8_t* Ring(const SequenceState& sequence) const {
    return sequence.windows + static_cast<size_t>(plan_.layer) * layout_.window_bytes_per_layer;
  }

  // Rotates the tail of each of `heads` vectors of `dim` channels in a row.
  void RotateHeads(float* x, int heads, int dim, int64_t r, Rotation rotation) const {
    for (int h = 0; h < heads; ++h) {
      Rotate(x + (h + 1) * dim - rope_dim(), angles(r), rope_dim(), rotation);
    }
  }

  // xq = quantized x; qr = q_norm(wq_a xq), quantized; q = rope(wq_b qr).
  void ProjectQueries() {
    const size_t rank = static_cast<size_t>(config_.q_lora_rank);
    s_.xq = s_.x;
    RoundAll(s_.xq.data(), config_.hidden_size);
    s_.qr.resize(static_cast<size_t>(rows()) * rank);
    Multiply(w_.wq_a, s_.xq.data(), hidden(), rows(), s_.qr.data(), rank, Rounding::kBf16,
             *step_->pool);
    for (int r = 0; r < rows(); ++r) {
      float* qr = s_.qr.data() + static_cast<size_t>(r) * rank;
      ActiveRowMath().rms_norm(qr, w_.q_norm.data(), eps(), config_.q_lora_rank, qr);
    }
    RoundAll(s_.qr.data(), config_.q_lora_rank);
    s_.q.resize(static_cast<size_t>(rows()) * q_size());
    Multiply(w_.wq_b, s_.qr.data(), rank, rows(), s_.q.data(), q_size(), Rounding::kBf16,
             *step_->pool);
    step_->pool->ParallelFor(rows(), kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        RotateHeads(s_.q.data() + static_cast<size_t>(r) * q_size(), config_.num_attention_heads,
                    config_.head_dim, r, Rotation::kForward);
      }
    });
  }

  void RoundAll(float* x, int n) const {
    step_->pool->ParallelFor(rows(), kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      RoundRows(RowFormat::kWindowKv, x + begin * n, static_cast<size_t>(n),
                static_cast<int>(end - begin), n);
    });
  }

  // Packed window rows of the step, one per active row.
  Status ComputeWindowRows() {
    s_.kv.resize(static_cast<size_t>(rows()) * head_dim());
    Multiply(w_.wkv, s_.xq.data(), hidden(), rows(), s_.kv.data(), head_dim(), Rounding::kBf16,
             *step_->pool);
    s_.window_rows.resize(static_cast<size_t>(rows()) * layout_.window_row_bytes);
    std::atomic<int64_t> bad{-1};
    step_->pool->ParallelFor(rows(), kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        float* kv = s_.kv.data() + static_cast<size_t>(r) * head_dim();
        ActiveRowMath().rms_norm(kv, w_.kv_norm.data(), eps(), config_.head_dim, kv);
        RotateHeads(kv, 1, config_.head_dim, r, Rotation::kForward);
        if (!EncodeRows(RowFormat::kWindowKv, kv, head_dim(), 1, config_.head_dim,
                        s_.window_rows.data() + static_cast<size_t>(r) * layout_.window_row_bytes,
                        layout_.window_row_bytes)) {
          bad = r;
        }
      }
    });
    if (bad < 0) return Status::Ok();
    return Internal(fmt::format("layer {} computed a window row that is not finite (position {})",
                                plan_.layer, row(bad).pos));
  }

  // Index queries of this layer, then top-k (and candidate pool) of every row (numerics 8 and 9).
  void Select() {
    const int heads = config_.index_n_heads;
    const int dim = config_.index_head_dim;
    const size_t size = static_cast<size_t>(heads) * static_cast<size_t>(dim);
    s_.iq.resize(static_cast<size_t>(rows()) * size);
    Multiply(w_.indexer->wq_b, s_.qr.data(), static_cast<size_t>(config_.q_lora_rank), rows(),
             s_.iq.data(), size, Rounding::kBf16, *step_->pool);
    s_.index_weights.resize(static_cast<size_t>(rows() * heads));
    Multiply(w_.indexer->weights_proj, s_.x.data(), hidden(), rows(), s_.index_weights.data(),
             static_cast<size_t>(heads), Rounding::kBf16, *step_->pool);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads) * dim));
    for (float& w : s_.index_weights) w = RoundToBf16(w * scale);

    const int64_t ratio = layout_.sources[static_cast<size_t>(plan_.kv_source)].ratio;
    s_.index_visible.resize(static_cast<size_t>(rows()));
    step_->pool->ParallelFor(rows(), kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        RotateHeads(s_.iq.data() + static_cast<size_t>(r) * size, heads, dim, r, Rotation::kForward);
        s_.index_visible[static_cast<size_t>(r)] = (row(r).pos + 1) / ratio;
      }
      RoundRows(RowFormat::kIndexKey, s_.iq.data() + static_cast<size_t>(begin) * size,
                static_cast<size_t>(dim), static_cast<int>(end - begin) * heads, dim);
    });
    SelectAll();
  }

  void SelectAll() {
    Selections& chosen = step_->selections;
    chosen.source_layer = plan_.layer;
    chosen.selected.resize(static_cast<size_t>(rows()));
    IndexLimits limits{config_.index_topk, {config_.candidate_topk_blocks, config_.candidate_block_size},
                       CandidateUse::kNone};
    if (plan_.candidate == CandidateRole::kMakes) limits.use = CandidateUse::kChoose;
    if (plan_.candidate == CandidateRole::kFilters) limits.use = CandidateUse::kFilter;
    if (limits.use == CandidateUse::kChoose) chosen.candidates.resize(static_cast<size_t>(rows()));
    s_.scanners.resize(static_cast<size_t>(step_->pool->num_threads()));
    const std::vector<int64_t> bounds = QueryGroups();
    std::vector<IndexGroup> groups;
    for (size_t g = 0; g + 1 < bounds.size(); ++g) {
      groups.push_back(GroupOf(bounds[g], bounds[g + 1], limits));
    }
    SelectRows(groups, limits, s_.scanners, step_->pool);
  }

  // Row boundaries of groups that share a pass over the keys: rows of one span, at most kMaxQueries.
  std::vector<int64_t> QueryGroups() const {
    std::vector<int64_t> groups = {0};
    for (int64_t r = 1; r < rows(); ++r) {
      if (row(r).span != row(r - 1).span || r - groups.back() == IndexScanner::kMaxQueries) {
        groups.push_back(r);
      }
    }
    groups.push_back(rows());
    return groups;
  }

  IndexGroup GroupOf(int64_t begin, int64_t end, const IndexLimits& limits) {
    const size_t first = static_cast<size_t>(begin);
    const size_t heads = static_cast<size_t>(config_.index_n_heads);
    const KvSource& source = layout_.sources[static_cast<size_t>(plan_.kv_source)];
    Selections& chosen = step_->selections;
    return {{s_.iq.data() + first * heads * static_cast<size_t>(config_.index_head_dim),
             s_.index_weights.data() + first * heads,
             {s_.index_visible.data() + first, static_cast<size_t>(end - begin)},
             config_.index_n_heads,
             config_.index_head_dim},
            {span(begin).sequence->pages, source.key_offset, source.rows_per_block, layout_.key_row_bytes},
            chosen.selected.data() + first,
            limits.use == CandidateUse::kNone ? nullptr : chosen.candidates.data() + first};
  }

  void Attend() {
    s_.o.resize(static_cast<size_t>(rows()) * q_size());
    s_.attentions.resize(static_cast<size_t>(step_->pool->num_threads()));
    const auto attend = [&](const AttentionShare& share, int thread) {
      float* out = s_.o.data() + static_cast<size_t>(share.row) * q_size() +
                   static_cast<size_t>(share.first_head) * head_dim();
      s_.attentions[static_cast<size_t>(thread)].Run(
          Query(share.row).of_heads(share.first_head, share.num_heads), out);
      RotateHeads(out, share.num_heads, config_.head_dim, share.row, Rotation::kInverse);
    };
    ForEachAttentionShare(rows(), config_.num_attention_heads, step_->pool, attend);
  }

  AttentionQuery Query(int64_t r) const {
    const SequenceState& sequence = *span(r).sequence;
    const int64_t pos = row(r).pos;
    AttentionQuery query;
    query.q = s_.q.data() + static_cast<size_t>(r) * q_size();
    query.heads = config_.num_attention_heads;
    query.dim = config_.head_dim;
    query.sink = w_.sink.data();
    query.sliding_window = config_.sliding_window;
    query.window_begin = std::max(WindowStart(sequence), pos - config_.sliding_window + 1);
    query.window_end = pos + 1;
    // The span's first active row: the decoder may have dropped rows before it.
    int64_t first = r;
    first -= pos - FirstActivePosition(row(r).span);
    query.window = {Ring(sequence),
                    s_.window_rows.data() + static_cast<size_t>(first) * layout_.window_row_bytes,
                    row(first).pos, config_.sliding_window, layout_.window_row_bytes};
    if (plan_.ratio > 0) {
      const KvSource& source = layout_.sources[static_cast<size_t>(plan_.kv_source)];
      query.global = {sequence.pages, source.kv_offset, source.rows_per_block, layout_.kv_row_bytes};
      query.selected = step_->selections.selected[static_cast<size_t>(r)];
    }
    return query;
  }

  // Rows of a span are consecutive positions, so one position fixes them all.
  int64_t FirstActivePosition(int span_index) const {
    const StepSpan& sp = step_->spans[static_cast<size_t>(span_index)];
    return plan_.layer < layout_.encoder_layers() ? sp.begin
                                                  : std::max(sp.begin, sp.sequence->decoder_begin);
  }

  // The last rows of each span enter its ring, now that no query needs what they replace.
  void StoreWindowRows() {
    for (int64_t r = 0; r < rows(); ++r) {
      const StepSpan& sp = span(r);
      if (row(r).pos < sp.end - config_.sliding_window) continue;
      const size_t slot = static_cast<size_t>(row(r).pos % config_.sliding_window);
      std::memcpy(Ring(*sp.sequence) + slot * layout_.window_row_bytes,
                  s_.window_rows.data() + static_cast<size_t>(r) * layout_.window_row_bytes,
                  layout_.window_row_bytes);
    }
  }

  // y = wo_b(quantized concat of bf(wo_a[g] o_g)); wo_a takes its input unquantized.
  void ProjectOutput() {
    const size_t groups = w_.wo_a.size();
    const size_t in = q_size() / groups;
    const size_t rank = static_cast<size_t>(config_.o_lora_rank);
    s_.z.resize(static_cast<size_t>(rows()) * groups * rank);
    for (size_t g = 0; g < groups; ++g) {
      Multiply(w_.wo_a[g], s_.o.data() + g * in, q_size(), rows(), s_.z.data() + g * rank,
               groups * rank, Rounding::kBf16, *step_->pool);
    }
    RoundAll(s_.z.data(), static_cast<int>(groups * rank));
    s_.y.resize(static_cast<size_t>(rows()) * hidden());
    Multiply(w_.wo_b, s_.z.data(), groups * rank, rows(), s_.y.data(), hidden(), Rounding::kBf16,
             *step_->pool);
  }

  const LayerPlan& plan_;
  const AttentionWeights& w_;
  const ModelConfig& config_;
  const CacheLayout& layout_;
  Step* step_;
  Step::Scratch& s_;
  const float* angles_;
};

}  // namespace

Status RunAttention(const LayerPlan& plan, const AttentionWeights& weights, const ModelConfig& config,
                    const CacheLayout& layout, Step* step) {
  return AttentionLayer(plan, weights, config, layout, step).Run();
}

}  // namespace emberkv
