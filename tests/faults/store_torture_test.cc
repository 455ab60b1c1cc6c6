// SIGKILL at every named point of the local store's changes to the disk, and at random moments between
// them, many times over one store. After each kill: every page that was acknowledged and whose promise
// holds is readable with the right bytes, nothing wrong is ever served, nothing erased comes back.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/fake_clock.h"
#include "store/local_test_medium.h"
#include "store/test_pages.h"
#include "torture_child.h"

extern char** environ;

namespace emberkv {
namespace {

constexpr const char* kChildFlag = "--torture-child";

// In the order in which a new store passes them; files are made while it grows only.
const std::vector<std::string> kPoints = {
    "open.locked",         "open.format",          "open.index",          "open.adopted",
    "segment.before_create", "segment.after_create", "segment.after_index", "put.before_write",
    "put.after_write",     "put.after_sync",       "put.after_index",     "extend.before_index",
    "extend.after_index",  "erase.before_index",   "erase.after_index",   "expire.before_index",
    "expire.after_index",  "segment.before_index", "empty.before_index",  "empty.after_index",
    "compact.before_write", "compact.after_write",  "compact.after_sync",  "compact.after_index",
};
// These are passed by a store of version 1.
const std::vector<std::string> kUpgradePoints = {"upgrade.before_index", "upgrade.after_index",
                                                 "upgrade.after_format"};
constexpr int kKillsPerPoint = 2;
constexpr int kTriesPerPoint = 30;
constexpr int kRandomKills = 20;

struct Tally {
  uint64_t kills = 0;
  uint64_t faults = 0;
  uint64_t reads_verified = 0;
  uint64_t wrong_bytes = 0;
  uint64_t lost_acknowledged = 0;
  uint64_t corrupt = 0;
  uint64_t erased_served = 0;
  uint64_t evicted_before_deadline = 0;
};

class Torture {
 public:
  // Starts a child that dies at the point, or after the pause; says whether it was killed.
  bool Kill(const std::string& point, int nth, int64_t pause_us) {
    TortureOrders orders{.directory = directory_.path() + "/store",
                         .journal = directory_.path() + "/journal",
                         .seed = ++seed_,
                         .first_page = next_page_,
                         .clock_us = now_us_,
                         .kill_at = point,
                         .kill_nth = nth};
    const pid_t child = Spawn(orders);
    if (pause_us > 0) {
      const timespec pause{pause_us / 1'000'000, pause_us % 1'000'000 * 1000};
      ::nanosleep(&pause, nullptr);
      ::kill(child, SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(is_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        << "the child failed at " << point << ", status " << status;
    tally_.kills += is_killed;
    ReadJournal(orders.journal);
    Verify();
    return is_killed;
  }

  // Of a store that keeps what it holds, but no retention of a page's own: version 1 knew none.
  void Downgrade() {
    for (const uint64_t tenant : {1, 2}) Forget(tenant);
    MakeVersion1(directory_.path() + "/store");
  }

  const Tally& tally() const { return tally_; }

 private:
  struct Page {
    int64_t promised_until_us = 0;
    bool is_erased = false;
  };

  // A new process image: threads of RocksDB do not survive a mere fork.
  static pid_t Spawn(const TortureOrders& orders) {
    std::vector<std::string> words = {"store_torture_test", kChildFlag, orders.directory, orders.journal,
                                      std::to_string(orders.seed), std::to_string(orders.first_page),
                                      std::to_string(orders.clock_us), std::to_string(orders.kill_nth),
                                      orders.kill_at};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    EXPECT_EQ(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ), 0);
    return child;
  }

  void ReadJournal(const std::string& path) {
    std::ifstream journal(path);
    std::string line;
    uint64_t lines = 0;
    while (std::getline(journal, line)) {
      if (lines++ < journal_lines_) continue;
      std::istringstream words(line);
      char what = 0;
      uint64_t number = 0;
      int64_t time_us = 0;
      words >> what >> number >> time_us;
      if (what == 'T') now_us_ = static_cast<int64_t>(number);
      if (what == 'F') ++tally_.faults;
      if (what == 'W') ++tally_.wrong_bytes;
      if (what == 'S' || what == 'H') Promise(number, time_us);
      if (what == 'E' || what == 'e') Erase(number, what == 'e');
    }
    journal_lines_ = lines;
    next_page_ += 200;  // more than a child puts: a number is put by one child only
  }

  void Promise(uint64_t number, int64_t time_us) {
    const int64_t own_us = TortureLimitsOf(TortureTenantOf(number)).own_retention_us();
    const int64_t retention_us = own_us > 0 ? own_us : kTortureRetention.count();
    pages_[number] = {.promised_until_us = time_us + retention_us, .is_erased = false};
  }

  void Forget(uint64_t tenant) {
    FakeClock clock;
    clock.SetMonotonic(now_us_);
    const auto store = LocalStore::Open(TortureOptions(directory_.path() + "/store"), &clock).value();
    ASSERT_TRUE(store->EraseTenant(TestTenant(tenant)).ok());
    Erase(tenant, true);
  }

  void Erase(uint64_t tenant, bool is_done) {
    for (auto& [number, page] : pages_) {
      if (TortureTenantOf(number) != tenant) continue;
      page.promised_until_us = 0;
      page.is_erased = is_done;
    }
  }

  void Verify() {
    FakeClock clock;
    clock.SetMonotonic(now_us_);
    auto opened = LocalStore::Open(TortureOptions(directory_.path() + "/store"), &clock);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const auto store = std::move(opened).value();

    // What is promised, what was not long ago, and what the last children may have left half done.
    std::vector<uint64_t> numbers;
    for (const auto& [number, page] : pages_) {
      if (page.promised_until_us > now_us_ || number + 1000 > next_page_) numbers.push_back(number);
    }
    for (uint64_t number = next_page_ - 200; number < next_page_ - 100; ++number) {
      if (!pages_.contains(number)) numbers.push_back(number);
    }
    std::vector<TestPage> pages;
    for (const uint64_t number : numbers) {
      pages.push_back(MakeTestPage(number, kTorturePayloadBytes, TortureTenantOf(number)));
    }
    const std::vector<GetOutcome> outcomes = ReadPages(*store, pages);  // expects right bytes
    tally_.wrong_bytes += ::testing::Test::HasFailure();
    for (size_t i = 0; i < numbers.size(); ++i) Judge(numbers[i], outcomes[i]);
    tally_.evicted_before_deadline += store->Stats().evicted_before_deadline;
    EXPECT_LE(store->Stats().used_bytes, store->Stats().budget_bytes);
    VerifyTenants(*store);
  }

  // What tenants are said to have is what is there.
  static void VerifyTenants(LocalStore& store) {
    std::map<Digest, TenantSum> counted;
    const auto pages = store.List({}, 1 << 20);
    ASSERT_TRUE(pages.ok());
    for (const auto& [key, page] : *pages) {
      TenantSum& sum = counted[page.tenant];
      ++sum.pages;
      sum.bytes += page.record_bytes();
      if (page.deadline_us > store.durable_now_us()) sum.promised_bytes += page.record_bytes();
    }
    EXPECT_EQ(store.Stats().tenants.size(), counted.size());
    for (const TenantSum& told : store.Stats().tenants) {
      TenantSum right = counted[told.tenant];
      right.tenant = told.tenant;
      EXPECT_EQ(told, right);
    }
  }

  void Judge(uint64_t number, GetOutcome outcome) {
    ++tally_.reads_verified;
    const auto known = pages_.find(number);
    const bool is_hit = outcome == GetOutcome::kHit;
    if (known != pages_.end()) {
      tally_.lost_acknowledged += known->second.promised_until_us > now_us_ && !is_hit;
      tally_.erased_served += known->second.is_erased && is_hit;
    }
    tally_.corrupt += outcome == GetOutcome::kCorrupt;
    if (is_hit) Promise(number, now_us_);
  }

  TemporaryDirectory directory_;
  Tally tally_;
  uint64_t seed_ = 0;
  uint64_t next_page_ = 0;
  uint64_t journal_lines_ = 0;
  int64_t now_us_ = 1'000'000;
  std::map<uint64_t, Page> pages_;
};

TEST(StoreTorture, NothingAcknowledgedIsLostAndNothingWrongIsServed) {
  Torture torture;
  for (const std::string& point : kPoints) {
    int kills = 0;
    for (int attempt = 0; attempt < kTriesPerPoint && kills < kKillsPerPoint; ++attempt) {
      kills += torture.Kill(point, point.starts_with("open.") ? 1 : 1 + attempt % 3, 0);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(kills, kKillsPerPoint) << point << " was not passed often enough";
  }
  for (const std::string& point : kUpgradePoints) {
    torture.Downgrade();
    EXPECT_TRUE(torture.Kill(point, 1, 0)) << point;
    if (::testing::Test::HasFailure()) return;
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < kRandomKills && !::testing::Test::HasFailure(); ++i) {
    torture.Kill("", 0, 1 + static_cast<int64_t>(random() % 60'000));
  }
  const Tally& tally = torture.tally();
  std::printf("kills %lu, faults %lu, reads verified %lu, wrong bytes %lu, lost acknowledged %lu, "
              "evicted_before_deadline %lu\n",
              tally.kills, tally.faults, tally.reads_verified, tally.wrong_bytes,
              tally.lost_acknowledged, tally.evicted_before_deadline);
  EXPECT_EQ(tally.wrong_bytes, 0u);
  EXPECT_EQ(tally.lost_acknowledged, 0u);
  EXPECT_EQ(tally.corrupt, 0u);
  EXPECT_EQ(tally.erased_served, 0u);
  EXPECT_EQ(tally.evicted_before_deadline, 0u);
  EXPECT_GT(tally.reads_verified, 1000u);
  EXPECT_GT(tally.faults, 0u);
}

}  // namespace
}  // namespace emberkv

int main(int argc, char** argv) {
  if (argc == 9 && std::strcmp(argv[1], emberkv::kChildFlag) == 0) {
    const emberkv::TortureOrders orders{.directory = argv[2],
                                        .journal = argv[3],
                                        .seed = std::stoull(argv[4]),
                                        .first_page = std::stoull(argv[5]),
                                        .clock_us = std::stoll(argv[6]),
                                        .kill_at = argv[8],
                                        .kill_nth = std::stoi(argv[7])};
    return emberkv::RunTortureChild(orders);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
