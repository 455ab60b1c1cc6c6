// Continuous batching: packs what sessions want computed next into model steps.
//
// There is no thread of its own. Each session calls Run from its own thread and waits there; whoever
// finds the model idle becomes the model thread, waits a moment for the sessions of the last step to come
// back with their next token, takes a batch of what is waiting, and runs it for all. A session
// alone therefore pays for no hand-over.
//
// Which spans go into a step, and how much of each, is the StepPacker's policy. A span may be cut: results
// do not depend on it (docs/determinism.md). For the same reason a step of several spans that fails is run
// again span by span, and only what fails by itself fails.
//
// Any thread may call Run; one StepSeat is used by one thread at a time. The layout outlives the scheduler.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/step_packer.h"
#include "engine/step_undo.h"
#include "layout/cache_layout.h"
#include "model/step.h"

namespace emberkv {

class StepScheduler;

// A session's place in the batch. After each step the scheduler expects it to come back, until Leave.
class StepSeat {
 public:
  // `flow` names whose turn it is: sessions of one tenant share one.
  StepSeat(StepScheduler* scheduler, uint64_t flow) : scheduler_(scheduler), flow_(flow) {}
  ~StepSeat() { Leave(); }
  StepSeat(const StepSeat&) = delete;
  StepSeat& operator=(const StepSeat&) = delete;

  // No step follows soon: nobody waits for this session.
  void Leave();

 private:
  friend class StepScheduler;
  StepScheduler* const scheduler_;
  const uint64_t flow_;
  uint64_t expected_in_ = 0;  // guarded by the scheduler's lock: the gathering that waits for this seat
  int64_t served_ = 0;        // likewise: rows of long spans
};

struct StepRequest {
  SequenceState* sequence = nullptr;
  int64_t begin = 0;  // wants [begin, end) computed
  int64_t end = 0;
  bool wants_logits = false;  // of the last position
};

struct StepOutcome {
  Status status = Internal("the step failed");  // until it is told otherwise
  int64_t end = 0;            // [begin, end) was computed: at least one token, perhaps not all
  std::vector<float> logits;  // when they were wanted and all was computed
  int64_t token_layers = 0;
};

struct StepSchedulerStats {
  uint64_t steps = 0;
  uint64_t decode_rows = 0;
  uint64_t prefill_rows = 0;   // of spans longer than a token
  uint64_t packed_steps = 0;   // with more than one span
  uint64_t most_spans = 0;     // in one step
  double busy_seconds = 0;     // in the model
  double gather_seconds = 0;   // waiting for sessions to come back
  uint64_t waiting = 0;        // requests that wait for a step now
};

class StepScheduler {
 public:
  // What runs a step: Model::Forward. It may throw as well as fail.
  using Forward = std::function<Status(Step*)>;

  StepScheduler(Forward forward, const CacheLayout* layout, ThreadPool* threads, int step_tokens);

  // Computes a beginning of the request in one step. After an error the sequence's state is unspecified. Does
  // not throw: a request for which there is no memory gets an error, and the others go on.
  StepOutcome Run(StepSeat* seat, const StepRequest& request);

  StepSchedulerStats stats() const;

 private:
  friend class StepSeat;
  using Clock = std::chrono::steady_clock;

  class Lead;

  struct Waiting {
    StepSeat* seat = nullptr;
    StepRequest request;
    int64_t granted = 0;   // rows of the step it is in
    bool is_done = false;
    StepOutcome outcome;
    std::condition_variable wake;  // done, or should lead

    int64_t rows() const { return request.end - request.begin; }
  };

  void Expect(StepSeat* seat);
  void CameBack(StepSeat* seat);
  void LeadStep(std::unique_lock<std::mutex>* lock);
  void Gather(std::unique_lock<std::mutex>* lock);
  void PickBatch();
  void RunBatch();
  Status RunSpans(std::span<Waiting* const> batch, StepUndo* undo);
  void SetSpans(std::span<Waiting* const> batch);
  void TakeResults(std::span<Waiting* const> batch);
  void EndBatch();

  const Forward forward_;

  mutable std::mutex mutex_;
  std::condition_variable gathered_;  // what the leader waits for
  bool is_led_ = false;               // guarded by mutex_, as all up to stats_
  std::vector<Waiting*> waiting_;     // in order of arrival
  uint64_t gathering_ = 1;  // number of the current one
  int64_t num_expected_ = 0;  // seats of the last step that have not come back
  double last_step_seconds_ = 0;
  StepPacker packer_;
  StepSchedulerStats stats_;

  // The leader's.
  std::vector<Waiting*> batch_;  // taken from waiting_ and not done yet
  Clock::time_point step_begin_;
  Step step_;
  StepUndo undo_;
};

}  // namespace emberkv
