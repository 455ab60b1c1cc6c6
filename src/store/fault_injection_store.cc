#include "store/fault_injection_store.h"

#include <algorithm>
#include <utility>

namespace emberkv {
namespace {

constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24);  // sums stay in range

constexpr std::array<Fault, 3> kPutFaults = {Fault::kFailPut, Fault::kRefusePut, Fault::kLosePut};

PutOutcome OutcomeOf(Fault put_fault) {
  switch (put_fault) {
    case Fault::kRefusePut:
      return PutOutcome::kRefusedFull;
    case Fault::kLosePut:
      return PutOutcome::kStored;
    default:
      return PutOutcome::kFailed;
  }
}

}  // namespace

// A batch whose pages take three ways: read by the inner store at once, read when the gate opens,
// or not read at all.
class FaultInjectionStore::FaultyGet : public PendingGet {
 public:
  enum class Way : uint8_t { kRead, kCorrupt, kHang, kFail };

  FaultyGet(FaultInjectionStore* store, std::vector<GetRequest> requests, std::vector<Way> ways,
            size_t num_openings, std::chrono::milliseconds timeout)
      : store_(store),
        requests_(std::move(requests)),
        ways_(std::move(ways)),
        outcomes_(requests_.size(), GetOutcome::kFailed),
        num_openings_(num_openings),
        deadline_(std::chrono::steady_clock::now() + std::min(timeout, kLongestTimeout)) {
    read_ = Start([](Way way) { return way == Way::kRead || way == Way::kCorrupt; });
  }

  std::vector<GetOutcome> Wait() override {
    if (is_done_) return outcomes_;
    Finish(read_);
    const auto num_hung = static_cast<uint64_t>(std::ranges::count(ways_, Way::kHang));
    if (num_hung > 0 && WaitAtGate(num_hung)) {
      Batch late = Start([](Way way) { return way == Way::kHang; });
      Finish(late);
    }
    Corrupt();
    is_done_ = true;
    return outcomes_;
  }

 private:
  struct Batch {
    std::vector<size_t> places;  // in the requests
    std::unique_ptr<PendingGet> pending;
  };

  template <typename Takes>
  Batch Start(Takes takes) {
    Batch batch;
    std::vector<GetRequest> requests;
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (!takes(ways_[i])) continue;
      batch.places.push_back(i);
      requests.push_back(requests_[i]);
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    batch.pending =
        store_->inner_->Get(std::move(requests), std::max(left, std::chrono::milliseconds(0)));
    return batch;
  }

  void Finish(Batch& batch) {
    const std::vector<GetOutcome> outcomes = batch.pending->Wait();
    for (size_t i = 0; i < outcomes.size(); ++i) outcomes_[batch.places[i]] = outcomes[i];
  }

  // True when the hung pages are to be read after all.
  bool WaitAtGate(uint64_t num_hung) {
    std::unique_lock lock(store_->mutex_);
    store_->hanging_ += num_hung;
    store_->arrived_.notify_all();
    const bool is_open = store_->gate_.wait_until(
        lock, deadline_, [&] { return store_->gate_openings_.size() > num_openings_; });
    store_->hanging_ -= num_hung;
    if (is_open && store_->gate_openings_[num_openings_]) return true;
    store_->timed_out_ += num_hung;
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (ways_[i] == Way::kHang) outcomes_[i] = GetOutcome::kTimeout;
    }
    return false;
  }

  void Corrupt() {
    const std::lock_guard lock(store_->mutex_);
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (ways_[i] != Way::kCorrupt || outcomes_[i] != GetOutcome::kHit) continue;
      outcomes_[i] = GetOutcome::kCorrupt;
      for (uint8_t& byte : requests_[i].payload) byte ^= 0xff;  // whoever uses them is found out
      ++store_->corrupted_;
      store_->corrupted_bytes_ += requests_[i].payload.size();
    }
  }

  FaultInjectionStore* const store_;
  const std::vector<GetRequest> requests_;
  const std::vector<Way> ways_;
  std::vector<GetOutcome> outcomes_;
  const size_t num_openings_;  // of the gate before the read began; the next one is for this read
  const std::chrono::steady_clock::time_point deadline_;
  bool is_done_ = false;
  Batch read_;
};

FaultInjectionStore::FaultInjectionStore(std::unique_ptr<KvStore> inner, uint64_t seed)
    : inner_(std::move(inner)), random_(seed) {}

void FaultInjectionStore::StrikeNext(Fault fault, uint64_t count) {
  const std::lock_guard lock(mutex_);
  plans_[static_cast<size_t>(fault)].next = count;
}

void FaultInjectionStore::StrikeAtRandom(Fault fault, double probability) {
  const std::lock_guard lock(mutex_);
  plans_[static_cast<size_t>(fault)].probability = probability;
}

void FaultInjectionStore::StopFaults() {
  const std::lock_guard lock(mutex_);
  plans_.fill(Plan());
}

uint64_t FaultInjectionStore::struck(Fault fault) const {
  const std::lock_guard lock(mutex_);
  return struck_[static_cast<size_t>(fault)];
}

void FaultInjectionStore::ReleaseHungGets() { OpenGate(true); }

void FaultInjectionStore::TimeOutHungGets() { OpenGate(false); }

void FaultInjectionStore::OpenGate(bool reads_go_on) {
  const std::lock_guard lock(mutex_);
  gate_openings_.push_back(reads_go_on);
  gate_.notify_all();
}

void FaultInjectionStore::AwaitHungGets(uint64_t count) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return hanging_ >= count; });
}

bool FaultInjectionStore::Strikes(Fault fault) {
  Plan& plan = plans_[static_cast<size_t>(fault)];
  bool strikes = plan.next > 0;
  if (strikes) {
    --plan.next;
  } else if (plan.probability > 0) {
    strikes = std::uniform_real_distribution<double>()(random_) < plan.probability;
  }
  if (strikes) ++struck_[static_cast<size_t>(fault)];
  return strikes;
}

std::vector<PutOutcome> FaultInjectionStore::Put(std::span<const PageRecord> pages) {
  std::vector<PutOutcome> outcomes(pages.size());
  std::vector<PageRecord> sound;
  std::vector<size_t> places;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto fault = std::ranges::find_if(kPutFaults, [&](Fault f) { return Strikes(f); });
      if (fault != kPutFaults.end()) {
        outcomes[i] = OutcomeOf(*fault);
      } else {
        sound.push_back(pages[i]);
        places.push_back(i);
      }
    }
  }
  const std::vector<PutOutcome> inner = inner_->Put(sound);
  for (size_t i = 0; i < inner.size(); ++i) outcomes[places[i]] = inner[i];
  return outcomes;
}

std::unique_ptr<PendingGet> FaultInjectionStore::Get(std::vector<GetRequest> requests,
                                                     std::chrono::milliseconds timeout) {
  using Way = FaultyGet::Way;
  std::vector<Way> ways(requests.size(), Way::kRead);
  size_t num_openings = 0;
  {
    const std::lock_guard lock(mutex_);
    for (Way& way : ways) {
      if (Strikes(Fault::kFailGet)) {
        way = Way::kFail;
      } else if (Strikes(Fault::kCorruptGet)) {
        way = Way::kCorrupt;
      } else if (Strikes(Fault::kHangGet)) {
        way = Way::kHang;
      }
    }
    num_openings = gate_openings_.size();
  }
  return std::make_unique<FaultyGet>(this, std::move(requests), std::move(ways), num_openings,
                                     timeout);
}

StoreStats FaultInjectionStore::Stats() {
  StoreStats stats = inner_->Stats();
  const std::lock_guard lock(mutex_);
  const auto count = [&](Fault fault) { return struck_[static_cast<size_t>(fault)]; };
  stats.puts_failed += count(Fault::kFailPut);
  stats.puts_refused_full += count(Fault::kRefusePut);
  stats.puts_stored += count(Fault::kLosePut);
  stats.get_failed += count(Fault::kFailGet);
  stats.get_timeouts += timed_out_;
  stats.get_corrupt += corrupted_;
  stats.get_hits -= corrupted_;
  stats.bytes_read -= corrupted_bytes_;
  return stats;
}

}  // namespace emberkv
