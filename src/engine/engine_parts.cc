#include "engine/engine_parts.h"

#include <chrono>
#include <utility>

#include "engine/late_work.h"

namespace emberkv {
namespace {

// For what the store has begun. A disk that was given up already gets a last moment.
constexpr std::chrono::seconds kCloseTimeout{30};
constexpr std::chrono::seconds kLastMoment{1};

// What uses the disk, and the memory that transfers move, in the order in which it is made.
struct DurableTier {
  std::unique_ptr<SystemClock> clock;
  std::unique_ptr<LocalStore> store;
  std::unique_ptr<StoreKeeper> keeper;
  std::unique_ptr<PageCache> cache;
};

}  // namespace

EngineParts::~EngineParts() {
  if (store == nullptr) return;
  windows.reset();  // uses the clock
  auto tier = std::make_shared<DurableTier>();
  *tier = {std::move(clock), std::move(store), std::move(keeper), std::move(cache)};
  const auto timeout = has_given_up_disk ? kLastMoment : kCloseTimeout;
  // If the disk hangs, the tier is left to its threads for the rest of the process, knowingly: the system may
  // still write to the pages of a hung read, and read those of a hung write.
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  (void)FinishBy(deadline, [tier = std::move(tier)]() mutable { tier.reset(); });
}

}  // namespace emberkv
