// Which of the waiting spans go into the next step, and how much of each: the policy of the StepScheduler.
//
// Used under its owner's lock.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace emberkv {

// A span of a session that waits, in order of arrival.
struct SpanWish {
  int64_t rows = 0;    // at least 1; one row is a decode step
  uint64_t flow = 0;   // sessions of one tenant share one
  int64_t served = 0;  // rows of long spans that the session has had
};

class StepPacker {
 public:
  explicit StepPacker(int step_tokens) : step_tokens_(step_tokens) {}

  // Rows granted to each wish, 0 for those that wait on. Single rows go first, up to step_tokens. Long spans
  // share what is left of step_tokens, at least a quarter: the span that waits longest is sure of a quarter of
  // that, the rest goes to the flow that was served least, within a flow to the session that was.
  std::vector<int64_t> Pack(std::span<const SpanWish> wishes);

 private:
  struct Long {
    size_t index = 0;
    int64_t served = 0;
  };
  void LevelNewFlows(std::span<const SpanWish> wishes, const std::vector<Long>& longs);
  void ShareRows(std::span<const SpanWish> wishes, std::vector<Long> longs, int64_t rows,
                 std::vector<int64_t>* granted);

  const int step_tokens_;
  std::unordered_map<uint64_t, int64_t> flow_served_;  // rows of long spans, while any span is long
};

}  // namespace emberkv
