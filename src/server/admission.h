// Which request runs next: a bounded queue in front of the engine, fair between tenants.
//
// Each tenant's requests wait in order of arrival, and tenants take turns. A request starts when fewer than
// max_running run and the page pool has room for all pages that it may come to hold, beside those promised to
// the running ones. Whose turn it is waits for that room, and nobody overtakes: large requests are
// never starved.
//
// Any thread may call anything. Work is started through the function given at construction, which must
// not block; no callback is called with the lock held. The object outlives all work that it started.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/tenants.h"

namespace emberkv {

struct AdmissionOptions {
  int max_running = 8;
  int max_queued = 64;
  int64_t pool_pages = 0;
};

enum class RefusalReason {
  kNeverFits,  // needs more pages than there are
  kQueueFull,
  kTenantBusy,  // max_concurrent of the tenant
  kTenantRate,  // tokens_per_minute of the tenant
  kDraining,    // the server ends
  kClientGone,  // left while it waited
};
inline constexpr int kNumRefusalReasons = static_cast<int>(RefusalReason::kClientGone) + 1;
const char* RefusalReasonName(RefusalReason reason);
int HttpStatusOf(RefusalReason reason);  // 400, 503, 429, 429, 503, 499

struct Refusal {
  RefusalReason reason;
  std::string message;
  int retry_after_seconds = 0;  // 0: trying again is no use
};

// Exactly one of `run` and `drop` is called, once, unless Submit refuses: then none.
struct QueuedWork {
  std::shared_ptr<const Tenant> tenant;
  int64_t pages = 0;                           // at most held at once
  int64_t prompt_tokens = 0;                   // charged to the tenant's rate
  const std::atomic<bool>* is_gone = nullptr;  // the client left; valid until one of the two has returned
  std::function<void()> run;                   // started work; its place is free when it returns
  std::function<void(const Refusal&)> drop;
};

struct AdmissionStats {
  int64_t running = 0;
  int64_t queued = 0;
  int64_t pages_promised = 0;  // to running requests
  int64_t pool_pages = 0;
  uint64_t admitted = 0;
  uint64_t refused[kNumRefusalReasons] = {};
};

class Admission {
 public:
  using Start = std::function<void(std::function<void()>)>;

  Admission(const AdmissionOptions& options, const Clock* clock, Start start);
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  std::optional<Refusal> Submit(QueuedWork work);

  // Tokens of an answer, which are known when it is complete.
  void Charge(const Tenant& tenant, int64_t tokens);

  // Drops what waits for clients that have left.
  void DropGone();

  // From here on everything is refused; what waits is dropped, what runs goes on.
  void Drain();
  // True when nothing runs any more, false after `timeout`.
  bool WaitIdle(std::chrono::milliseconds timeout);

  AdmissionStats stats() const;

 private:
  // A tenant's turn and its budget of tokens, which fills up to one minute's worth. A request may overdraw
  // it: the next ones wait until the debt is paid, so that a prompt of any length can be served.
  struct Account {
    std::deque<QueuedWork> waiting;
    int64_t running = 0;
    double tokens = 0;
    int64_t filled_at_us = -1;  // -1: never used
  };

  std::optional<Refusal> Check(const QueuedWork& work, Account* account);
  std::optional<Refusal> CheckRate(const Tenant& tenant, Account* account);
  void Fill(const TenantLimits& limits, Account* account);
  std::vector<QueuedWork> TakeGone();
  std::vector<QueuedWork> TakeReady();
  void StartReady();
  void Run(QueuedWork* work);
  void Finish(const QueuedWork& work, int64_t run_us);
  void DropAll(std::vector<QueuedWork> works, const Refusal& refusal);
  int QueueSeconds() const;

  // Constant after construction.
  const AdmissionOptions options_;
  const Clock* const clock_;
  const Start start_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::map<std::string, Account> accounts_;  // guarded by mutex_, as all that follows
  std::string last_turn_;                    // the tenant that was served last
  int64_t queued_ = 0;
  int64_t running_ = 0;
  int64_t pages_promised_ = 0;
  bool is_draining_ = false;
  double mean_run_us_ = 0;
  AdmissionStats counters_;
};

}  // namespace emberkv
