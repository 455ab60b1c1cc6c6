#include "model/engram.h"

#include <algorithm>
#include <cmath>

#include "formats/row_codec.h"
#include "linear/multiply.h"
#include "model/row_math.h"

namespace emberkv {
namespace {

constexpr int kRowsPerTask = 16;

// sigmoid(sign(dot) * sqrt(max(|dot|, 1e-6)))
float Gate(float dot) {
  const float root = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot);
  return 1.0f / (1.0f + std::exp(-root));
}

void UpdateStreams(const EngramWeights& weights, const ModelConfig& config, const float* kv, float* h) {
  const RowMath& math = ActiveRowMath();
  const int hidden = config.hidden_size;
  const float eps = static_cast<float>(config.rms_norm_eps);
  const float width = static_cast<float>(hidden);
  const float* value = kv + static_cast<size_t>(config.hc_mult) * static_cast<size_t>(hidden);
  for (int i = 0; i < config.hc_mult; ++i) {
    float* stream = h + static_cast<size_t>(i) * static_cast<size_t>(hidden);
    const float* key = kv + static_cast<size_t>(i) * static_cast<size_t>(hidden);
    const float h_norm = 1.0f / std::sqrt(math.sum_squares(stream, hidden) / width + eps);
    const float k_norm = 1.0f / std::sqrt(math.sum_squares(key, hidden) / width + eps);
    const float dot = math.triple_dot(stream, weights.qk[static_cast<size_t>(i)].data(), key, hidden) *
                      h_norm * k_norm * (1.0f / std::sqrt(width));
    math.add_scaled(stream, Gate(dot), value, hidden);
  }
}

}  // namespace

Status ApplyEngram(const EngramWeights& weights, const EngramHash& hash, const EngramTable& table,
                   int index, const ModelConfig& config, Step* step) {
  Step::Scratch& s = step->scratch;
  const int rows = step->num_rows();
  const size_t columns = static_cast<size_t>(hash.num_columns());
  const size_t width = columns * static_cast<size_t>(config.engram_head_dim);
  s.engram_ids.resize(static_cast<size_t>(rows) * columns);
  for (int r = 0; r < rows; ++r) {
    const StepRow& row = step->rows[static_cast<size_t>(r)];
    hash.Rows(index, step->spans[static_cast<size_t>(row.span)].sequence->tokens, row.pos,
              s.engram_ids.data() + static_cast<size_t>(r) * columns);
  }
  s.engram_rows.resize(static_cast<size_t>(rows) * width);
  EMBERKV_RETURN_IF_ERROR(table.ReadRows(s.engram_ids, s.engram_rows.data()));
  RoundRows(RowFormat::kWindowKv, s.engram_rows.data(), width, rows, static_cast<int>(width));
  const size_t kv_width = static_cast<size_t>(weights.wkv.rows());
  s.engram_kv.resize(static_cast<size_t>(rows) * kv_width);
  Multiply(weights.wkv, s.engram_rows.data(), width, rows, s.engram_kv.data(), kv_width,
           Rounding::kBf16, *step->pool);
  const size_t stream_size =
      static_cast<size_t>(config.hc_mult) * static_cast<size_t>(config.hidden_size);
  step->pool->ParallelFor(rows, kRowsPerTask, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      UpdateStreams(weights, config, s.engram_kv.data() + static_cast<size_t>(r) * kv_width,
                    step->stream.data() + static_cast<size_t>(r) * stream_size);
    }
  });
  return Status::Ok();
}

}  // namespace emberkv
