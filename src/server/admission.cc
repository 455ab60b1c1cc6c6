#include "server/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

namespace emberkv {
namespace {

constexpr int kMaxRetrySeconds = 60;
constexpr double kMeanWeight = 0.2;  // of the last run in the mean of run times

Refusal Draining() { return {RefusalReason::kDraining, "the server is shutting down", 5}; }
Refusal ClientGone() { return {RefusalReason::kClientGone, "the client left while the request waited", 0}; }

}  // namespace

const char* RefusalReasonName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kNeverFits: return "never_fits";
    case RefusalReason::kQueueFull: return "queue_full";
    case RefusalReason::kTenantBusy: return "tenant_busy";
    case RefusalReason::kTenantRate: return "tenant_rate";
    case RefusalReason::kDraining: return "draining";
    case RefusalReason::kClientGone: return "client_gone";
  }
  return "unknown";
}

int HttpStatusOf(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kNeverFits: return 400;
    case RefusalReason::kTenantBusy:
    case RefusalReason::kTenantRate: return 429;
    case RefusalReason::kClientGone: return 499;
    case RefusalReason::kQueueFull:
    case RefusalReason::kDraining: return 503;
  }
  return 500;
}

Admission::Admission(const AdmissionOptions& options, const Clock* clock, Start start)
    : options_(options), clock_(clock), start_(std::move(start)) {}

std::optional<Refusal> Admission::Submit(QueuedWork work) {
  DropGone();  // their places are free
  {
    const std::lock_guard lock(mutex_);
    Account& account = accounts_[work.tenant->name];
    if (std::optional<Refusal> refusal = Check(work, &account)) {
      ++counters_.refused[static_cast<size_t>(refusal->reason)];
      return refusal;
    }
    if (work.tenant->limits.tokens_per_minute > 0) account.tokens -= static_cast<double>(work.prompt_tokens);
    account.waiting.push_back(std::move(work));
    ++queued_;
  }
  StartReady();
  return std::nullopt;
}

std::optional<Refusal> Admission::Check(const QueuedWork& work, Account* account) {
  const TenantLimits& limits = work.tenant->limits;
  if (is_draining_) return Draining();
  if (work.pages > options_.pool_pages) {
    return Refusal{
        RefusalReason::kNeverFits,
        fmt::format("the request may need {} pages of the cache at once (prompts and max_tokens of all its "
                    "answers), the server has {}; lower max_tokens or n, or shorten the prompt",
                    work.pages, options_.pool_pages),
        0};
  }
  const int64_t open = account->running + static_cast<int64_t>(account->waiting.size());
  if (limits.max_concurrent > 0 && open >= limits.max_concurrent) {
    return Refusal{
        RefusalReason::kTenantBusy,
        fmt::format("{} requests of this tenant run or wait, its limit is {}", open, limits.max_concurrent),
        1};
  }
  if (std::optional<Refusal> refusal = CheckRate(*work.tenant, account)) return refusal;
  // What can start at once does not need a place in the queue.
  const bool starts_now =
      queued_ == 0 && running_ < options_.max_running && pages_promised_ + work.pages <= options_.pool_pages;
  if (!starts_now && queued_ >= options_.max_queued) {
    return Refusal{RefusalReason::kQueueFull,
                   fmt::format("{} requests run and {} wait, which is the most", running_, queued_),
                   QueueSeconds()};
  }
  return std::nullopt;
}

std::optional<Refusal> Admission::CheckRate(const Tenant& tenant, Account* account) {
  const TenantLimits& limits = tenant.limits;
  if (limits.tokens_per_minute == 0) return std::nullopt;
  Fill(limits, account);
  if (account->tokens > 0) return std::nullopt;
  const double per_second = static_cast<double>(limits.tokens_per_minute) / 60;
  const double seconds = std::min(std::floor(-account->tokens / per_second) + 1, 1e6);
  return Refusal{RefusalReason::kTenantRate,
                 fmt::format("this tenant's {} tokens per minute are used up", limits.tokens_per_minute),
                 static_cast<int>(seconds)};
}

void Admission::Fill(const TenantLimits& limits, Account* account) {
  const int64_t now_us = clock_->MonotonicMicros();
  const double most = static_cast<double>(limits.tokens_per_minute);
  if (account->filled_at_us < 0) {
    account->tokens = most;
  } else {
    const double minutes = static_cast<double>(now_us - account->filled_at_us) / 60e6;
    account->tokens = std::min(most, account->tokens + most * minutes);
  }
  account->filled_at_us = now_us;
}

void Admission::Charge(const Tenant& tenant, int64_t tokens) {
  if (tenant.limits.tokens_per_minute == 0) return;
  const std::lock_guard lock(mutex_);
  accounts_[tenant.name].tokens -= static_cast<double>(tokens);
}

int Admission::QueueSeconds() const {
  const double seconds =
      mean_run_us_ * 1e-6 * static_cast<double>(queued_ + 1) / static_cast<double>(options_.max_running);
  return static_cast<int>(std::clamp(std::ceil(seconds), 1.0, double{kMaxRetrySeconds}));
}

std::vector<QueuedWork> Admission::TakeGone() {
  std::vector<QueuedWork> gone;
  const std::lock_guard lock(mutex_);
  if (queued_ == 0) return gone;
  for (auto& [name, account] : accounts_) {
    auto& waiting = account.waiting;
    const auto kept = std::stable_partition(waiting.begin(), waiting.end(), [](const QueuedWork& work) {
      return work.is_gone == nullptr || !work.is_gone->load();
    });
    gone.insert(gone.end(), std::make_move_iterator(kept), std::make_move_iterator(waiting.end()));
    waiting.erase(kept, waiting.end());
  }
  queued_ -= static_cast<int64_t>(gone.size());
  return gone;
}

void Admission::DropGone() {
  std::vector<QueuedWork> gone = TakeGone();
  if (gone.empty()) return;
  DropAll(std::move(gone), ClientGone());
  StartReady();  // one of them may have waited for room
}

// Whose turn it is next: the tenant after the last one, by name, that has something waiting.
std::vector<QueuedWork> Admission::TakeReady() {
  std::vector<QueuedWork> ready;
  const std::lock_guard lock(mutex_);
  while (queued_ > 0 && running_ < options_.max_running) {
    auto turn = accounts_.upper_bound(last_turn_);
    while (turn == accounts_.end() || turn->second.waiting.empty()) {
      turn = turn == accounts_.end() ? accounts_.begin() : std::next(turn);
    }
    Account& account = turn->second;
    const int64_t pages = account.waiting.front().pages;
    if (pages_promised_ + pages > options_.pool_pages) break;
    ready.push_back(std::move(account.waiting.front()));
    account.waiting.pop_front();
    ++account.running;
    --queued_;
    ++running_;
    ++counters_.admitted;
    pages_promised_ += pages;
    last_turn_ = turn->first;
  }
  return ready;
}

void Admission::StartReady() {
  for (QueuedWork& work : TakeReady()) {
    start_([this, shared = std::make_shared<QueuedWork>(std::move(work))] { Run(shared.get()); });
  }
}

void Admission::Run(QueuedWork* work) {
  const int64_t start_us = clock_->MonotonicMicros();
  if (work->is_gone != nullptr && work->is_gone->load()) {
    DropAll({*work}, ClientGone());
  } else {
    work->run();
  }
  work->run = nullptr;  // lets go of what the request holds before its place is free
  work->drop = nullptr;
  Finish(*work, clock_->MonotonicMicros() - start_us);
}

void Admission::Finish(const QueuedWork& work, int64_t run_us) {
  {
    const std::lock_guard lock(mutex_);
    --running_;
    --accounts_[work.tenant->name].running;
    pages_promised_ -= work.pages;
    mean_run_us_ = mean_run_us_ == 0
                       ? static_cast<double>(run_us)
                       : (1 - kMeanWeight) * mean_run_us_ + kMeanWeight * static_cast<double>(run_us);
  }
  StartReady();
  const std::lock_guard lock(mutex_);
  if (running_ == 0) idle_.notify_all();
}

void Admission::DropAll(std::vector<QueuedWork> works, const Refusal& refusal) {
  {
    const std::lock_guard lock(mutex_);
    counters_.refused[static_cast<size_t>(refusal.reason)] += works.size();
  }
  for (const QueuedWork& work : works) work.drop(refusal);
}

void Admission::Drain() {
  std::vector<QueuedWork> waiting;
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    for (auto& [name, account] : accounts_) {
      std::move(account.waiting.begin(), account.waiting.end(), std::back_inserter(waiting));
      account.waiting.clear();
    }
    queued_ = 0;
  }
  DropAll(std::move(waiting), Draining());
}

bool Admission::WaitIdle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, timeout, [this] { return running_ == 0; });
}

AdmissionStats Admission::stats() const {
  const std::lock_guard lock(mutex_);
  AdmissionStats stats = counters_;
  stats.running = running_;
  stats.queued = queued_;
  stats.pages_promised = pages_promised_;
  stats.pool_pages = options_.pool_pages;
  return stats;
}

}  // namespace emberkv
