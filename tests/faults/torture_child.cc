#include "torture_child.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <random>
#include <vector>

#include "base/fake_clock.h"
#include "store/local_test_medium.h"
#include "store/test_pages.h"

namespace emberkv {
namespace {

constexpr int kSteps = 24;

class Child {
 public:
  explicit Child(const TortureOrders& orders)
      : orders_(orders),
        journal_(::open(orders.journal.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644)),
        random_(orders.seed),
        next_page_(orders.first_page) {
    clock_.SetMonotonic(orders.clock_us);
  }

  int Run() {
    LocalStoreOptions options = TortureOptions(orders_.directory);
    options.io = io_;
    int passed = 0;
    options.failpoint = [this, &passed](std::string_view point) {
      if (point == orders_.kill_at && ++passed == orders_.kill_nth) ::kill(::getpid(), SIGKILL);
    };
    auto opened = LocalStore::Open(options, &clock_);
    if (!opened.ok()) return 2;
    store_ = std::move(opened).value();
    for (int step = 0; step < kSteps; ++step) Step();
    store_.reset();
    return 0;
  }

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }

  void Note(const std::string& line) {
    const std::string whole = line + "\n";
    if (::write(journal_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) ::raise(SIGABRT);
  }
  void NotePage(char what, uint64_t page) {
    Note(std::string(1, what) + " " + std::to_string(page) + " " + std::to_string(clock_.MonotonicMicros()));
  }

  void Step() {
    switch (Below(12)) {
      case 0:
        Sweep();
        break;
      case 1:
        if (Below(4) == 0) Erase();
        break;
      case 2:
      case 3:
      case 4:
        ReadHotPages();
        break;
      default:
        PutSome();
    }
    const int64_t later = clock_.MonotonicMicros() + kTortureRetention.count() / 24;
    if (::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) Note("W");
    Note("T " + std::to_string(later));
    clock_.Advance(later - clock_.MonotonicMicros());
  }

  void PutSome() {
    if (Below(10) == 0) {
      Note("F");
      (Below(2) == 0 ? io_->write_error : io_->sync_error) = Below(2) == 0 ? EIO : ENOSPC;
    }
    std::vector<uint64_t> numbers;
    std::vector<TestPage> pages;
    for (uint64_t i = 0; i < 1 + Below(8); ++i) {
      numbers.push_back(next_page_++);
      pages.push_back(MakeTestPage(numbers.back(), kTorturePayloadBytes, TortureTenantOf(numbers.back())));
    }
    std::vector<PageRecord> records;
    for (size_t i = 0; i < pages.size(); ++i) {
      records.push_back(pages[i].Record());
      records.back().limits = TortureLimitsOf(TortureTenantOf(numbers[i]));
    }
    const std::vector<PutOutcome> outcomes = store_->Put(records);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (outcomes[i] == PutOutcome::kStored) NotePage('S', numbers[i]);
      if (outcomes[i] == PutOutcome::kAlreadyThere) NotePage('H', numbers[i]);
    }
    io_->write_error = 0;
    io_->sync_error = 0;
  }

  // Every fourth page is used again and again, so that segments die only in part.
  void ReadHotPages() {
    std::vector<uint64_t> numbers;
    std::vector<TestPage> pages;
    const uint64_t from = next_page_ > 120 ? next_page_ - 120 : 0;
    for (uint64_t number = from; number < next_page_; ++number) {
      if (number % 4 != 0) continue;
      numbers.push_back(number);
      pages.push_back(MakeTestPage(number, kTorturePayloadBytes, TortureTenantOf(number)));
    }
    const std::vector<GetOutcome> outcomes = ReadPages(*store_, pages);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (outcomes[i] == GetOutcome::kHit) NotePage('H', numbers[i]);
    }
  }

  void Erase() {
    const uint64_t tenant = Below(kTortureTenants);
    Note("E " + std::to_string(tenant));
    if (!store_->EraseTenant(TestTenant(tenant)).ok()) return;
    Note("e " + std::to_string(tenant));
  }

  void Sweep() { store_->Sweep(); }

  const TortureOrders& orders_;
  const int journal_;
  std::mt19937_64 random_;
  uint64_t next_page_;
  FakeClock clock_;
  const std::shared_ptr<FaultySegmentIo> io_ = std::make_shared<FaultySegmentIo>();
  std::unique_ptr<LocalStore> store_;
};

}  // namespace

LocalStoreOptions TortureOptions(const std::string& directory) {
  return {.directory = directory,
          .budget_bytes = uint64_t{37} << 18,  // 18 segments of 5 records besides the index
          .retention = kTortureRetention,
          .max_page_bytes = 16 << 10,
          .segment_bytes = uint64_t{64} << 10};
}

int RunTortureChild(const TortureOrders& orders) { return Child(orders).Run(); }

}  // namespace emberkv
