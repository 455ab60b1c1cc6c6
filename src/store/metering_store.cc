#include "store/metering_store.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace emberkv {

// One call of one operation, from construction to destruction.
class MeteringStore::Timing {
 public:
  Timing(MeteringStore* store, OperationMeter StoreMeter::*operation, size_t items)
      : store_(store),
        operation_(operation),
        items_(items),
        start_us_(store->clock_->MonotonicMicros()) {
    const std::lock_guard lock(store_->mutex_);
    ++(store_->meter_.*operation_).in_flight;
  }

  ~Timing() {
    const int64_t passed_us = store_->clock_->MonotonicMicros() - start_us_;
    const auto us = static_cast<uint64_t>(std::max<int64_t>(passed_us, 0));
    const size_t bucket =
        std::min(static_cast<size_t>(std::bit_width(us)), OperationMeter::kNumBuckets - 1);
    const std::lock_guard lock(store_->mutex_);
    OperationMeter& meter = store_->meter_.*operation_;
    --meter.in_flight;
    ++meter.calls;
    meter.items += items_;
    meter.total_us += us;
    meter.max_us = std::max(meter.max_us, us);
    ++meter.buckets[bucket];
  }

  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;

 private:
  MeteringStore* const store_;
  OperationMeter StoreMeter::*const operation_;
  const size_t items_;
  const int64_t start_us_;
};

class MeteringStore::MeteredGet : public PendingGet {
 public:
  MeteredGet(MeteringStore* store, std::vector<GetRequest> requests,
             std::chrono::milliseconds timeout)
      : timing_(std::in_place, store, &StoreMeter::get, requests.size()),
        inner_(store->inner_->Get(std::move(requests), timeout)) {}

  std::vector<GetOutcome> Wait() override {
    std::vector<GetOutcome> outcomes = inner_->Wait();
    timing_.reset();
    return outcomes;
  }

 private:
  std::optional<Timing> timing_;  // first: an abandoned read is timed until the inner one let go
  std::unique_ptr<PendingGet> inner_;
};

MeteringStore::MeteringStore(std::unique_ptr<KvStore> inner, const Clock* clock)
    : inner_(std::move(inner)), clock_(clock) {}

std::vector<PutOutcome> MeteringStore::Put(std::span<const PageRecord> pages) {
  const Timing timing(this, &StoreMeter::put, pages.size());
  return inner_->Put(pages);
}

std::unique_ptr<PendingGet> MeteringStore::Get(std::vector<GetRequest> requests,
                                               std::chrono::milliseconds timeout) {
  return std::make_unique<MeteredGet>(this, std::move(requests), timeout);
}

std::vector<bool> MeteringStore::Contains(std::span<const BlockHash> keys) {
  const Timing timing(this, &StoreMeter::contains, keys.size());
  return inner_->Contains(keys);
}

void MeteringStore::Touch(std::span<const BlockHash> keys) {
  const Timing timing(this, &StoreMeter::touch, keys.size());
  inner_->Touch(keys);
}

Result<uint64_t> MeteringStore::EraseTenant(const Digest& tenant) {
  const Timing timing(this, &StoreMeter::erase_tenant, 1);
  return inner_->EraseTenant(tenant);
}

uint64_t MeteringStore::Sweep() {
  const Timing timing(this, &StoreMeter::sweep, 1);
  return inner_->Sweep();
}

StoreMeter MeteringStore::Meter() const {
  const std::lock_guard lock(mutex_);
  return meter_;
}

}  // namespace emberkv
