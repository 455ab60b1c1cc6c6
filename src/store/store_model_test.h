// A randomized test of any store against a simple model: for every page, whether and until when it
// is promised, and as what it may be missed; for every tenant, what it has and whether its limit may be what
// refuses a page. Takes a harness of store/store_contract.h:
//
//   TEST(LocalStore, AgreesWithTheModel) { RunStoreModel<LocalHarness>(kModelTestTime); }
//
// Runs are short and seeded one after the other, so that a failure names the seed that repeats it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "store/kv_store.h"
#include "store/store_contract.h"
#include "store/test_pages.h"

namespace emberkv {

inline constexpr std::chrono::milliseconds kModelTestTime = std::chrono::seconds(2);

template <typename Harness>
class StoreModel {
 public:
  explicit StoreModel(uint64_t seed) : random_(seed) {
    const size_t num_pages = Harness::kBudgetBytes / Harness::kPayloadBytes + 20;
    for (size_t i = 0; i < num_pages; ++i) {
      pages_.push_back(MakeTestPage(i, Harness::kPayloadBytes, i % kTenants));
    }
    states_.resize(pages_.size());
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Step();
      CheckStats();
    }
    std::vector<size_t> all(pages_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    Get(all);
    CheckStats();
  }

 private:
  static constexpr uint64_t kTenants = 4;
  static constexpr size_t kLimitPages = 4;

  struct State {
    bool is_stored = false;  // put and, as far as is known, still there: for sure while promised
    bool is_damaged = false;
    int64_t retention_us = 0;
    int64_t promised_until_us = 0;
    std::set<GetOutcome> may_miss_as = {GetOutcome::kNeverSeen};
  };

  bool IsPromised(const State& state) const {
    return state.is_stored && now_us_ < state.promised_until_us;
  }
  // Compaction reads pages, and so may quarantine a damaged one before anybody asks for it.
  static bool MayBeFoundOut(const State& state) { return state.is_stored && state.is_damaged; }
  bool MustHit(const State& state) const { return IsPromised(state) && !state.is_damaged; }
  void Promise(State& state) {
    state.promised_until_us = std::max(state.promised_until_us, now_us_ + state.retention_us);
  }
  void Promise(State& state, const StoreLimits& limits) {
    state.retention_us = limits.retention.count() > 0 ? limits.retention.count() : kRetentionUs;
    Promise(state);
  }

  // Two tenants have limits; half of all puts bring a retention, shorter or longer than the store's.
  static bool HasLimit(uint64_t tenant) { return tenant % 2 == 1; }
  StoreLimits SomeLimits(uint64_t tenant) {
    const std::chrono::microseconds retentions[] = {{}, {}, kContractRetention / 2, 2 * kContractRetention};
    return {.max_bytes = HasLimit(tenant) ? kLimitPages * Harness::kStoredPageBytes : 0,
            .retention = retentions[Below(std::size(retentions))]};
  }

  // Pages of the tenant that count against its limit: for sure, and at most.
  size_t LeastPromised(uint64_t tenant) const {
    size_t pages = 0;
    for (size_t i = tenant; i < states_.size(); i += kTenants) pages += MustHit(states_[i]);
    return pages;
  }
  size_t MostPromised(uint64_t tenant) const {
    size_t pages = 0;
    for (size_t i = tenant; i < states_.size(); i += kTenants) {
      const int64_t latest_us = states_[i].promised_until_us + 2 * kRetentionUs / 3;
      pages += states_[i].is_stored && now_us_ < latest_us;
    }
    return pages;
  }

  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  std::vector<size_t> SomePages() {  // no page twice
    std::vector<size_t> some;
    for (size_t left = 1 + Below(8); left > 0; --left) {
      const size_t place = Below(pages_.size());
      if (std::ranges::find(some, place) == some.end()) some.push_back(place);
    }
    return some;
  }

  std::vector<TestPage> PagesAt(const std::vector<size_t>& places) const {
    std::vector<TestPage> pages;
    for (const size_t place : places) pages.push_back(pages_[place]);
    return pages;
  }

  void Step() {
    const size_t dice = Below(100);
    if (dice < 40) {
      Put(SomePages());
    } else if (dice < 65) {
      Get(SomePages());
    } else if (dice < 72) {
      Contains(SomePages());
    } else if (dice < 79) {
      Touch(SomePages());
    } else if (dice < 81) {
      EraseTenant(Below(kTenants));
    } else if (dice < 84) {
      Sweep();
    } else if (dice < 88) {
      Damage(Below(pages_.size()));
    } else if (dice < 90) {
      Reopen();
    } else if (dice < 92) {
      harness_.clock().JumpWall(Below(2) == 0 ? kTenDaysUs : -kTenDaysUs);
    } else {
      const int64_t passed_us = kRetentionUs / (dice == 99 ? 1 : 20);
      harness_.clock().Advance(passed_us);
      now_us_ += passed_us;
    }
  }

  void Put(const std::vector<size_t>& places) {
    std::vector<PageRecord> records;
    for (const size_t place : places) {
      records.push_back(pages_[place].Record());
      records.back().limits = SomeLimits(place % kTenants);
    }
    const std::vector<PutOutcome> outcomes = harness_.store().Put(records);
    ASSERT_EQ(outcomes.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      State& state = states_[places[i]];
      const uint64_t tenant = places[i] % kTenants;
      if (outcomes[i] == PutOutcome::kStored && HasLimit(tenant)) {
        EXPECT_LT(LeastPromised(tenant), kLimitPages) << "stored beyond the limit of tenant " << tenant;
      }
      switch (outcomes[i]) {
        case PutOutcome::kStored:
          EXPECT_FALSE(MustHit(state)) << "stored, and it was promised to be there already";
          state = {.is_stored = true, .may_miss_as = {GetOutcome::kExpired}};
          Promise(state, records[i].limits);
          ++stored_;
          break;
        case PutOutcome::kAlreadyThere:
          EXPECT_TRUE(state.is_stored) << "already there, and nobody stored it";
          Promise(state, records[i].limits);
          ++already_there_;
          break;
        case PutOutcome::kRefusedFull:
        case PutOutcome::kRefusedTenantFull:
          EXPECT_FALSE(MustHit(state)) << "refused, and it was promised to be there already";
          // What is quarantined may go on being known as that.
          if (MayBeFoundOut(state)) state.may_miss_as.insert(GetOutcome::kQuarantined);
          state.is_stored = false;
          std::erase_if(state.may_miss_as, [](auto o) { return o != GetOutcome::kQuarantined; });
          state.may_miss_as.insert(GetOutcome::kRefused);
          ++(outcomes[i] == PutOutcome::kRefusedFull ? refused_ : refused_tenant_);
          break;
        default:
          ADD_FAILURE() << PutOutcomeName(outcomes[i]);
      }
    }
    // Pages that are there already may be promised again before the others are looked at.
    for (size_t i = 0; i < places.size(); ++i) {
      if (outcomes[i] != PutOutcome::kRefusedTenantFull) continue;
      const uint64_t tenant = places[i] % kTenants;
      EXPECT_TRUE(HasLimit(tenant));
      EXPECT_GE(MostPromised(tenant), kLimitPages) << "refused below the limit of tenant " << tenant;
    }
  }

  void Get(const std::vector<size_t>& places) {
    const std::vector<GetOutcome> outcomes = ReadPages(harness_.store(), PagesAt(places));
    ASSERT_EQ(outcomes.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      State& state = states_[places[i]];
      const GetOutcome outcome = outcomes[i];
      if (outcome == GetOutcome::kHit) {
        EXPECT_TRUE(state.is_stored && !state.is_damaged) << "hit on a page that cannot be there";
        Promise(state);
        ++hits_;
      } else if (outcome == GetOutcome::kCorrupt) {
        EXPECT_TRUE(state.is_stored && state.is_damaged) << "corrupt, and nobody damaged it";
        state = {.may_miss_as = {GetOutcome::kQuarantined}};
        ++corrupt_;
      } else {
        const bool is_found_out = MayBeFoundOut(state) && outcome == GetOutcome::kQuarantined;
        EXPECT_TRUE(is_found_out || !IsPromised(state)) << "promised, and " << GetOutcomeName(outcome);
        EXPECT_TRUE(is_found_out || state.may_miss_as.contains(outcome))
            << "unexpected " << GetOutcomeName(outcome);
        if (is_found_out) state.may_miss_as = {GetOutcome::kQuarantined};
        state.is_stored = false;
        ++misses_;
      }
    }
  }

  void Contains(const std::vector<size_t>& places) {
    const std::vector<bool> there = harness_.store().Contains(KeysOf(PagesAt(places)));
    ASSERT_EQ(there.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      const State& state = states_[places[i]];
      if (there[i]) {
        EXPECT_TRUE(state.is_stored);
      } else {
        EXPECT_FALSE(MustHit(state)) << "a promised page is not there";
      }
    }
  }

  void Touch(const std::vector<size_t>& places) {
    const std::vector<BlockHash> keys = KeysOf(PagesAt(places));
    harness_.store().Touch(keys);
    const std::vector<bool> there = harness_.store().Contains(keys);
    for (size_t i = 0; i < places.size(); ++i) {
      if (there[i]) Promise(states_[places[i]]);
    }
  }

  void EraseTenant(uint64_t tenant) {
    size_t least = 0;
    size_t most = 0;
    for (size_t i = tenant; i < states_.size(); i += kTenants) {
      State& state = states_[i];
      least += MustHit(state) ? 1 : 0;
      most += state.is_stored ? 1 : 0;
      if (MayBeFoundOut(state)) state.may_miss_as.insert(GetOutcome::kQuarantined);
      state.is_stored = false;
      state.may_miss_as.insert(GetOutcome::kNeverSeen);
    }
    const Result<uint64_t> erased = harness_.store().EraseTenant(TestTenant(tenant));
    ASSERT_TRUE(erased.ok()) << erased.status().ToString();
    EXPECT_GE(*erased, least);
    EXPECT_LE(*erased, most);
  }

  void Sweep() {
    const auto expired = std::ranges::count_if(
        states_, [&](const State& state) { return state.is_stored && !IsPromised(state); });
    EXPECT_LE(harness_.store().Sweep(), static_cast<uint64_t>(expired));
  }

  void Damage(size_t place) {
    if (states_[place].is_damaged) return;
    if (!harness_.store().Contains({&pages_[place].key, 1})[0]) return;
    harness_.Damage(pages_[place].key);
    states_[place].is_damaged = true;
  }

  void Reopen() {
    if constexpr (requires { harness_.Reopen(Reboot::kNo); }) {
      harness_.Reopen(Below(2) == 0 ? Reboot::kYes : Reboot::kNo);
      stored_ = already_there_ = refused_ = refused_tenant_ = hits_ = misses_ = corrupt_ = 0;
    }
  }

  void CheckStats() {
    const StoreStats stats = harness_.store().Stats();
    EXPECT_LE(stats.used_bytes, stats.budget_bytes);
    EXPECT_LE(stats.promised_bytes, stats.used_bytes);
    EXPECT_GE(stats.used_bytes, stats.pages * Harness::kPayloadBytes);
    EXPECT_EQ(stats.evicted_before_deadline, 0u);
    EXPECT_EQ(stats.puts_stored, stored_);
    EXPECT_EQ(stats.puts_already_there, already_there_);
    EXPECT_EQ(stats.puts_refused_full, refused_);
    EXPECT_EQ(stats.puts_refused_tenant_full, refused_tenant_);
    CheckTenants(stats);
    EXPECT_EQ(stats.get_hits, hits_);
    EXPECT_EQ(stats.get_misses, misses_);
    EXPECT_EQ(stats.get_corrupt, corrupt_);
  }

  void CheckTenants(const StoreStats& stats) {
    TenantSum all;
    for (uint64_t tenant = 0; tenant < kTenants; ++tenant) {
      const TenantSum sum = SumOf(harness_.store(), tenant);
      EXPECT_EQ(sum.bytes, sum.pages * Harness::kStoredPageBytes);
      EXPECT_GE(sum.promised_bytes, LeastPromised(tenant) * Harness::kStoredPageBytes);
      EXPECT_LE(sum.promised_bytes, MostPromised(tenant) * Harness::kStoredPageBytes);
      all.pages += sum.pages;
      all.promised_bytes += sum.promised_bytes;
    }
    EXPECT_EQ(all.pages, stats.pages);
    EXPECT_EQ(all.promised_bytes, stats.promised_bytes);
  }

  std::mt19937_64 random_;
  Harness harness_;
  int64_t now_us_ = 0;
  std::vector<TestPage> pages_;
  std::vector<State> states_;
  uint64_t stored_ = 0;
  uint64_t already_there_ = 0;
  uint64_t refused_ = 0;
  uint64_t refused_tenant_ = 0;
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
  uint64_t corrupt_ = 0;
};

// Runs of ever new seeds until `time` is up; at least one.
template <typename Harness>
void RunStoreModel(std::chrono::milliseconds time, int steps_per_run = 500) {
  const auto end = std::chrono::steady_clock::now() + time;
  uint64_t seed = 0;
  do {
    SCOPED_TRACE("seed " + std::to_string(++seed));
    StoreModel<Harness>(seed).Run(steps_per_run);
  } while (!::testing::Test::HasFailure() && std::chrono::steady_clock::now() < end);
}

}  // namespace emberkv
