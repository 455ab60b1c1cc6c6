#include "engine/step_scheduler.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace emberkv {
namespace {

// How long a step waits for sessions to come back: a part of what the last step took, so that the wait
// is paid back by a fuller batch, and never long.
constexpr double kGatherShare = 0.25;
constexpr std::chrono::microseconds kMaxGather{5'000};

}  // namespace

void StepSeat::Leave() {
  const std::lock_guard<std::mutex> lock(scheduler_->mutex_);
  scheduler_->CameBack(this);
}

StepScheduler::StepScheduler(const Model* model, ThreadPool* threads, int step_tokens)
    : model_(model), packer_(step_tokens), step_(threads) {}

void StepScheduler::Expect(StepSeat* seat) {
  seat->expected_in_ = gathering_;
  ++num_expected_;
}

void StepScheduler::CameBack(StepSeat* seat) {
  if (seat->expected_in_ == gathering_ && --num_expected_ == 0) gathered_.notify_one();
  seat->expected_in_ = 0;
}

StepOutcome StepScheduler::Run(StepSeat* seat, const StepRequest& request) {
  Waiting self;
  self.seat = seat;
  self.request = request;
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.push_back(&self);
  CameBack(seat);
  while (!self.is_done) {
    if (is_led_) {
      self.wake.wait(lock);
    } else {
      Lead(&lock);
    }
  }
  return std::move(self.outcome);
}

// Runs one step for those that wait, the caller perhaps not among them.
void StepScheduler::Lead(std::unique_lock<std::mutex>* lock) {
  is_led_ = true;
  Gather(lock);
  const std::vector<Waiting*> batch = PickBatch();
  lock->unlock();
  const auto start = Clock::now();
  RunBatch(batch);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  lock->lock();
  RecordBatch(batch, seconds);
  is_led_ = false;
  if (!waiting_.empty()) waiting_.front()->wake.notify_one();
}

// Waits a moment for the sessions of the last step. Those that are late then are not waited for again
// until they come back.
void StepScheduler::Gather(std::unique_lock<std::mutex>* lock) {
  if (num_expected_ > 0) {
    const auto start = Clock::now();
    const auto patience = std::min(kMaxGather, std::chrono::microseconds(static_cast<int64_t>(
                                                   last_step_seconds_ * kGatherShare * 1e6)));
    gathered_.wait_until(*lock, start + patience, [&] { return num_expected_ == 0; });
    stats_.gather_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  num_expected_ = 0;
  ++gathering_;
}

std::vector<StepScheduler::Waiting*> StepScheduler::PickBatch() {
  std::vector<SpanWish> wishes;
  for (const Waiting* waiting : waiting_) {
    wishes.push_back({waiting->rows(), waiting->seat->flow_, waiting->seat->served_});
  }
  const std::vector<int64_t> granted = packer_.Pack(wishes);
  std::vector<Waiting*> batch, left;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    Waiting* const waiting = waiting_[i];
    waiting->granted = granted[i];
    if (waiting->rows() > 1) waiting->seat->served_ += granted[i];
    (granted[i] > 0 ? batch : left).push_back(waiting);
  }
  waiting_ = std::move(left);
  return batch;
}

Status StepScheduler::RunForward() {
  // Memory can run out in a step: its sessions fail, the scheduler goes on.
  try {
    return model_->Forward(&step_);
  } catch (const std::exception& error) {
    return ResourceExhausted(error.what()).WithContext("the step was given up");
  }
}

// Fills in the outcomes. Without the lock: what waits in `batch` stays where it is until is_done.
void StepScheduler::RunBatch(const std::vector<Waiting*>& batch) {
  step_.spans.clear();
  for (const Waiting* waiting : batch) {
    const StepRequest& request = waiting->request;
    const int64_t end = request.begin + waiting->granted;
    step_.spans.push_back({request.sequence, request.begin, end, request.wants_logits && end == request.end});
  }
  const Status status = RunForward();
  const size_t vocab = static_cast<size_t>(model_->config().vocab_size);
  size_t at = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const StepSpan& span = step_.spans[i];
    StepOutcome& outcome = batch[i]->outcome;
    outcome.status = status;
    outcome.end = span.end;
    outcome.token_layers = span.token_layers;
    if (!status.ok() || !span.want_logits) continue;
    const float* logits = step_.logits.data() + at * vocab;
    outcome.logits.assign(logits, logits + vocab);
    ++at;
  }
}

void StepScheduler::RecordBatch(const std::vector<Waiting*>& batch, double seconds) {
  last_step_seconds_ = seconds;
  stats_.busy_seconds += seconds;
  ++stats_.steps;
  stats_.packed_steps += batch.size() > 1 ? 1 : 0;
  stats_.most_spans = std::max<uint64_t>(stats_.most_spans, batch.size());
  for (Waiting* waiting : batch) {
    (waiting->rows() > 1 ? stats_.prefill_rows : stats_.decode_rows) += static_cast<uint64_t>(waiting->granted);
    Expect(waiting->seat);
    waiting->is_done = true;
    waiting->wake.notify_one();
  }
}

StepSchedulerStats StepScheduler::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

}  // namespace emberkv
