#include "model/global_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "formats/row_codec.h"
#include "linear/multiply.h"
#include "model/row_math.h"

namespace emberkv {
namespace {

constexpr int kRowsPerTask = 16;

// One compressed row to be written.
struct Group {
  int span;
  int64_t entry;  // row number within the source
};

class GlobalRowWriter {
 public:
  GlobalRowWriter(const CompressorWeights& weights, const RopeTable& rope, const KvSource& source,
                  const ModelConfig& config, const CacheLayout& layout, Step* step)
      : weights_(weights), rope_(rope), source_(source), config_(config), layout_(layout), step_(step) {}

  Status Run() {
    if (source_.ratio == 1) {
      ProjectEachToken();
    } else {
      PoolPairs();
    }
    return StoreRows();
  }

 private:
  size_t head_dim() const { return static_cast<size_t>(config_.head_dim); }
  float* latent(size_t i) { return step_->scratch.latent.data() + i * head_dim(); }

  // latent = norm(bf(u)), in place.
  void NormLatents() {
    for (size_t i = 0; i < groups_.size(); ++i) {
      ActiveRowMath().rms_norm(latent(i), weights_.norm.data(), static_cast<float>(config_.rms_norm_eps),
                               config_.head_dim, latent(i));
    }
  }

  void ProjectEachToken() {
    const int rows = step_->num_rows();
    step_->scratch.latent.resize(static_cast<size_t>(rows) * head_dim());
    Multiply(weights_.wkv, step_->scratch.x.data(), static_cast<size_t>(config_.hidden_size), rows,
             latent(0), head_dim(), Rounding::kBf16, *step_->pool);
    size_t kept = 0;
    for (size_t r = 0; r < step_->rows.size(); ++r) {
      const StepRow& row = step_->rows[r];
      if (row.pos < Sequence(row.span).write_begin) continue;
      std::copy_n(latent(r), head_dim(), latent(kept++));
      groups_.push_back({row.span, row.pos});
    }
    NormLatents();
  }

  // Ratio 2: k and g stay fp32; each channel is pooled with its own softmax over the two tokens.
  void PoolPairs() {
    Step::Scratch& s = step_->scratch;
    const int rows = step_->num_rows();
    s.k.resize(static_cast<size_t>(rows) * head_dim());
    s.g.resize(s.k.size());
    const size_t hidden = static_cast<size_t>(config_.hidden_size);
    Multiply(weights_.wkv, s.x.data(), hidden, rows, s.k.data(), head_dim(), Rounding::kNone,
             *step_->pool);
    Multiply(*weights_.wgate, s.x.data(), hidden, rows, s.g.data(), head_dim(), Rounding::kNone,
             *step_->pool);
    s.latent.resize((static_cast<size_t>(rows) / 2 + step_->spans.size()) * head_dim());
    for (size_t r = 0; r < step_->rows.size(); ++r) {
      const StepRow& row = step_->rows[r];
      const SequenceState& sequence = Sequence(row.span);
      float* tail = sequence.tails + static_cast<size_t>(source_.tail_slot) * 2 * head_dim();
      const float* k = s.k.data() + r * head_dim();
      const float* g = s.g.data() + r * head_dim();
      if (row.pos % 2 == 0) {
        // The group stays open; if its second token comes in this step, that reads k and g directly.
        std::memcpy(tail, k, head_dim() * sizeof(float));
        std::memcpy(tail + head_dim(), g, head_dim() * sizeof(float));
        continue;
      }
      if (row.pos - 1 < std::max(sequence.write_begin, sequence.encoder_begin)) continue;
      const bool first_here = row.pos > step_->spans[static_cast<size_t>(row.span)].begin;
      const float* k0 = first_here ? k - head_dim() : tail;
      const float* g0 = first_here ? g - head_dim() : tail + head_dim();
      ActiveRowMath().pool_pair(k0, g0, k, g, config_.head_dim, latent(groups_.size()));
      groups_.push_back({row.span, row.pos / 2});
    }
    NormLatents();
  }

  // The latent feeds the index key before it is rotated and packed itself.
  Status StoreRows() {
    const int count = static_cast<int>(groups_.size());
    const int key_dim = config_.index_head_dim;
    std::vector<float>& keys = step_->scratch.key;
    keys.resize(static_cast<size_t>(count) * static_cast<size_t>(key_dim));
    Multiply(weights_.index_wk, step_->scratch.latent.data(), head_dim(), count, keys.data(),
             static_cast<size_t>(key_dim), Rounding::kBf16, *step_->pool);
    std::atomic<int64_t> bad{-1};
    step_->pool->ParallelFor(count, kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        if (!StoreRow(groups_[static_cast<size_t>(i)], latent(static_cast<size_t>(i)),
                      keys.data() + i * key_dim)) {
          bad = i;
        }
      }
    });
    if (bad < 0) return Status::Ok();
    return Internal(fmt::format("layer {} computed a global row that is not finite (row {})",
                                source_.layer, groups_[static_cast<size_t>(bad)].entry));
  }

  bool StoreRow(const Group& group, float* latent_row, float* key) const {
    const int rope_dim = rope_.dim();
    std::vector<float> angles(static_cast<size_t>(rope_dim));
    rope_.CosSin(group.entry * source_.ratio, angles.data());  // the group's first token
    ActiveRowMath().rms_norm(key, weights_.index_k_norm.data(),
                             static_cast<float>(config_.rms_norm_eps), config_.index_head_dim, key);
    Rotate(key + config_.index_head_dim - rope_dim, angles.data(), rope_dim, Rotation::kForward);
    Rotate(latent_row + config_.head_dim - rope_dim, angles.data(), rope_dim, Rotation::kForward);
    uint8_t* page = Sequence(group.span).writable_pages[group.entry / source_.rows_per_block];
    const size_t slot = static_cast<size_t>(group.entry % source_.rows_per_block);
    return EncodeRows(RowFormat::kGlobalKv, latent_row, head_dim(), 1, config_.head_dim,
                      page + source_.kv_offset + slot * layout_.kv_row_bytes, layout_.kv_row_bytes) &&
           EncodeRows(RowFormat::kIndexKey, key, static_cast<size_t>(config_.index_head_dim), 1,
                      config_.index_head_dim, page + source_.key_offset + slot * layout_.key_row_bytes,
                      layout_.key_row_bytes);
  }

  const SequenceState& Sequence(int span) const {
    return *step_->spans[static_cast<size_t>(span)].sequence;
  }

  const CompressorWeights& weights_;
  const RopeTable& rope_;
  const KvSource& source_;
  const ModelConfig& config_;
  const CacheLayout& layout_;
  Step* step_;
  std::vector<Group> groups_;
};

}  // namespace

Status WriteGlobalRows(const CompressorWeights& weights, const RopeTable& rope, const KvSource& source,
                       const ModelConfig& config, const CacheLayout& layout, Step* step) {
  return GlobalRowWriter(weights, rope, source, config, layout, step).Run();
}

}  // namespace emberkv
