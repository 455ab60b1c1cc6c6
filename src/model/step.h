// One model call: a batch of spans, each some consecutive positions of one sequence, with the scratch
// the call needs.
//
// A Step is reused from call to call by one thread (the model thread); its memory grows with the rows
// of the largest call, never with the context. Rows of different spans never influence each other's
// bits.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/index_select.h"
#include "attention/sparse_attention.h"
#include "base/thread_pool.h"
#include "model/sequence_state.h"
#include "model/stage_times.h"

namespace emberkv {

struct StepSpan {
  SequenceState* sequence = nullptr;
  int64_t begin = 0;  // positions [begin, end); continues what the sequence's state holds
  int64_t end = 0;
  bool want_logits = false;  // of the last position

  int64_t token_layers = 0;  // out: rows x layers that were computed in full
};

struct StepRow {
  int span = 0;
  int64_t pos = 0;
};

// Rows chosen by the last index source, one list per active row. Lists are ascending.
struct Selections {
  int source_layer = -1;
  std::vector<std::vector<int32_t>> selected;    // top-k rows of the KV source
  std::vector<std::vector<int32_t>> candidates;  // kept candidate blocks
};

struct Step {
  explicit Step(ThreadPool* pool_in) : pool(pool_in) {}

  ThreadPool* pool;  // not owned
  std::vector<StepSpan> spans;

  StageTimes* stage_times = nullptr;  // not owned; filled when set

  // Called after each layer when set; the model's tests look inside through it.
  std::function<void(int layer, const Step&)> after_layer;

  // Active rows, ordered by span and position. The decoder drops rows its spans do not need.
  std::vector<StepRow> rows;
  std::vector<float> stream;  // [rows][hc_mult][hidden], bf16 values
  std::vector<float> pre;     // [rows][hc_mult]
  Selections selections;

  // Results: logits of the spans that want them, in span order, [n][vocab].
  std::vector<float> logits;

  int num_rows() const { return static_cast<int>(rows.size()); }

  // What the Step holds now: grows with the rows of a call and the threads, not with the context.
  size_t bytes() const;

  // Scratch of the model's parts, by name.
  struct Scratch {
    std::vector<float> x, y, xq, mixes, post, comb, next_pre;
    std::vector<float> plain_angles, compressed_angles;  // [rows][rope dim]
    std::vector<float> qr, q, o, z, kv, iq, index_weights;
    std::vector<int64_t> index_visible;  // rows of the source that a query sees, [rows]
    std::vector<uint8_t> window_rows;  // packed, [rows]
    std::vector<float> k, g, latent, key;
    std::vector<float> router, expert_in, gate, up, hidden, expert_out;
    std::vector<int64_t> engram_ids;
    std::vector<float> engram_rows, engram_kv;
    std::vector<IndexScanner> scanners;       // per thread
    std::vector<SparseAttention> attentions;  // per thread
  } scratch;
};

}  // namespace emberkv
