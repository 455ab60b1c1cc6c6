#include "engine/step_scheduler.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

namespace emberkv {
namespace {

// How long a step waits for sessions to come back: a part of what the last step took, so that the wait
// is paid back by a fuller batch, and never long.
constexpr double kGatherShare = 0.25;
constexpr std::chrono::microseconds kMaxGather{5'000};

Status GivenUp(const std::exception& error) {
  try {
    return ResourceExhausted(error.what()).WithContext("the step was given up");
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory");  // short enough for the string to need none
  }
}

}  // namespace

// Whoever leads, until this ends: however that comes about, the lock is held again, the batch is done, and
// the lead is free.
class StepScheduler::Lead {
 public:
  Lead(StepScheduler* scheduler, std::unique_lock<std::mutex>* lock) : scheduler_(scheduler), lock_(lock) {
    scheduler_->is_led_ = true;
  }
  ~Lead() {
    if (!lock_->owns_lock()) lock_->lock();
    scheduler_->EndBatch();
    scheduler_->is_led_ = false;
  }
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

 private:
  StepScheduler* const scheduler_;
  std::unique_lock<std::mutex>* const lock_;
};

void StepSeat::Leave() {
  const std::lock_guard<std::mutex> lock(scheduler_->mutex_);
  scheduler_->CameBack(this);
}

StepScheduler::StepScheduler(Forward forward, const CacheLayout* layout, ThreadPool* threads, int step_tokens)
    : forward_(std::move(forward)), packer_(step_tokens), step_(threads), undo_(layout) {}

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
  CameBack(seat);
  try {
    waiting_.push_back(&self);
    while (!self.is_done) {
      if (is_led_) {
        self.wake.wait(lock);
      } else {
        LeadStep(&lock);
      }
    }
  } catch (const std::exception& error) {  // no memory to wait or to lead: others may have it
    std::erase(waiting_, &self);
    self.outcome.status = GivenUp(error);
  }
  if (!is_led_ && !waiting_.empty()) waiting_.front()->wake.notify_one();
  return std::move(self.outcome);
}

// Runs one step for those that wait, the caller perhaps not among them. Throws when there is no memory to
// pick them; all still wait then.
void StepScheduler::LeadStep(std::unique_lock<std::mutex>* lock) {
  const Lead lead(this, lock);
  Gather(lock);
  PickBatch();
  lock->unlock();
  step_begin_ = Clock::now();
  RunBatch();
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

void StepScheduler::PickBatch() {
  std::vector<SpanWish> wishes;
  for (const Waiting* waiting : waiting_) {
    wishes.push_back({waiting->rows(), waiting->seat->flow_, waiting->seat->served_});
  }
  const std::vector<int64_t> granted = packer_.Pack(wishes);
  std::vector<Waiting*> left;
  left.reserve(waiting_.size());
  batch_.reserve(waiting_.size());
  for (size_t i = 0; i < waiting_.size(); ++i) {  // nothing fails from here on
    Waiting* const waiting = waiting_[i];
    waiting->granted = granted[i];
    if (waiting->rows() > 1) waiting->seat->served_ += granted[i];
    (granted[i] > 0 ? batch_ : left).push_back(waiting);
  }
  waiting_ = std::move(left);
}

// Fills in the outcomes. Without the lock: what waits in the batch stays where it is until is_done.
void StepScheduler::RunBatch() {
  undo_.Clear();
  if (batch_.size() > 1 && RunSpans(batch_, &undo_).ok()) return;
  for (size_t i = 0; i < batch_.size(); ++i) {
    undo_.Restore(i);
    batch_[i]->outcome.status = RunSpans({&batch_[i], 1}, nullptr);
  }
}

Status StepScheduler::RunSpans(std::span<Waiting* const> batch, StepUndo* undo) {
  // Memory can run out in a step: its sessions fail, the scheduler goes on.
  try {
    SetSpans(batch);
    if (undo != nullptr) undo->Keep(step_.spans);
    EMBERKV_RETURN_IF_ERROR(forward_(&step_));
    TakeResults(batch);
    return Status::Ok();
  } catch (const std::exception& error) {
    return GivenUp(error);
  }
}

void StepScheduler::SetSpans(std::span<Waiting* const> batch) {
  step_.spans.clear();
  for (const Waiting* waiting : batch) {
    const StepRequest& request = waiting->request;
    const int64_t end = request.begin + waiting->granted;
    step_.spans.push_back({request.sequence, request.begin, end, request.wants_logits && end == request.end});
  }
}

void StepScheduler::TakeResults(std::span<Waiting* const> batch) {
  const auto wanted = static_cast<size_t>(std::ranges::count(step_.spans, true, &StepSpan::want_logits));
  const size_t vocab = wanted == 0 ? 0 : step_.logits.size() / wanted;
  const float* logits = step_.logits.data();
  for (size_t i = 0; i < batch.size(); ++i) {
    const StepSpan& span = step_.spans[i];
    StepOutcome& outcome = batch[i]->outcome;
    outcome.end = span.end;
    outcome.token_layers = span.token_layers;
    if (span.want_logits) {
      outcome.logits.assign(logits, logits + vocab);
      logits += vocab;
    }
    outcome.status = Status::Ok();
  }
}

void StepScheduler::EndBatch() {
  if (batch_.empty()) return;
  last_step_seconds_ = std::chrono::duration<double>(Clock::now() - step_begin_).count();
  stats_.busy_seconds += last_step_seconds_;
  ++stats_.steps;
  stats_.packed_steps += batch_.size() > 1 ? 1 : 0;
  stats_.most_spans = std::max<uint64_t>(stats_.most_spans, batch_.size());
  for (Waiting* waiting : batch_) {
    uint64_t& rows = waiting->rows() > 1 ? stats_.prefill_rows : stats_.decode_rows;
    rows += static_cast<uint64_t>(waiting->granted);
    Expect(waiting->seat);
    waiting->is_done = true;
    waiting->wake.notify_one();
  }
  batch_.clear();
}

StepSchedulerStats StepScheduler::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  StepSchedulerStats stats = stats_;
  stats.waiting = waiting_.size();
  return stats;
}

}  // namespace emberkv
