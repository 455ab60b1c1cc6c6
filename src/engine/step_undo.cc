#include "engine/step_undo.h"

#include <algorithm>

namespace emberkv {

template <typename Visit>
void StepUndo::ForEachRun(const StepSpan& span, const Visit& visit) const {
  if (span.end - span.begin < 2) return;
  const size_t row_bytes = layout_->window_row_bytes;
  const size_t window = layout_->window_bytes_per_layer / row_bytes;
  const size_t rows = std::min(static_cast<size_t>(span.end - span.begin), window);
  const size_t slot = (static_cast<size_t>(span.end) - rows) % window;
  const size_t before_wrap = std::min(rows, window - slot);
  for (size_t layer = 0; layer < layout_->layers.size(); ++layer) {
    uint8_t* const ring = span.sequence->windows + layer * layout_->window_bytes_per_layer;
    visit(ring + slot * row_bytes, before_wrap * row_bytes);
    visit(ring, (rows - before_wrap) * row_bytes);
  }
  visit(reinterpret_cast<uint8_t*>(span.sequence->tails), layout_->tail_bytes);
}

void StepUndo::Keep(std::span<const StepSpan> spans) {
  Clear();
  size_t bytes = 0;
  const auto count = [&bytes](const uint8_t*, size_t run) { bytes += run; };
  for (const StepSpan& span : spans) ForEachRun(span, count);
  bytes_.resize(bytes);
  kept_.reserve(spans.size());
  size_t at = 0;
  for (const StepSpan& span : spans) {
    kept_.push_back({span, at});
    ForEachRun(span, [&](const uint8_t* run, size_t run_bytes) {
      std::copy_n(run, run_bytes, bytes_.data() + at);
      at += run_bytes;
    });
  }
}

void StepUndo::Restore(size_t i) const {
  if (i >= kept_.size()) return;
  size_t at = kept_[i].at;
  ForEachRun(kept_[i].span, [&](uint8_t* run, size_t run_bytes) {
    std::copy_n(bytes_.data() + at, run_bytes, run);
    at += run_bytes;
  });
}

uint64_t StepUndo::MostBytes(const CacheLayout& layout, int rows) {
  const auto most_rows = static_cast<uint64_t>(rows);
  const uint64_t most_spans = most_rows / 2;
  return most_rows * layout.layers.size() * layout.window_row_bytes + most_spans * layout.tail_bytes;
}

}  // namespace emberkv
