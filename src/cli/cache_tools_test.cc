#include "cli/cache_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/small_store_for_tests.h"

namespace emberkv {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kHourUs = 3'600'000'000;

std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

json Only(const Result<std::string>& text) {
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? json::parse(*text) : json();
}

using CacheOpen = SmallStore;

TEST_F(CacheOpen, MakesNoStoreWhereNoneIs) {
  const std::string elsewhere = dir() + "_elsewhere";
  const auto missing = OpenStore(elsewhere, 0, &clock_);
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("is no store"));
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
}

TEST_F(CacheOpen, IsRefusedWhileAnotherHasTheStore) {
  const auto second = OpenStore(dir(), 0, &clock_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(),
              HasSubstr("in use by process " + std::to_string(::getpid())));
  store_.reset();
  EXPECT_TRUE(OpenStore(dir(), 0, &clock_).ok());
}

using CacheStat = SmallStore;

TEST_F(CacheStat, TellsPagesPromisesAndDeadlines) {
  PutChain(2);
  clock_.Advance(kHourUs);
  const std::vector<int32_t> tokens(128, 77);
  Put(Sha256("later"), {}, tokens);
  json stat = Only(DescribeStore(*store_, true));
  EXPECT_EQ(stat["budget_bytes"], 64 << 20);
  EXPECT_EQ(stat["retention_s"], 72 * 3600);
  EXPECT_EQ(stat["pages"], 3);
  EXPECT_EQ(stat["expired_pages"], 0);
  EXPECT_EQ(stat["promised_bytes"], 3 * 4096);
  EXPECT_NEAR(stat["soonest_deadline_s"].get<double>(), 71 * 3600, 2);
  EXPECT_NEAR(stat["latest_deadline_s"].get<double>(), 72 * 3600, 2);
  EXPECT_EQ(stat["io"], store_->IoDescription());

  clock_.Advance(71 * kHourUs + kHourUs / 2);
  stat = Only(DescribeStore(*store_, true));
  EXPECT_EQ(stat["expired_pages"], 2);
  EXPECT_EQ(stat["promised_bytes"], 4096);
  const auto text = DescribeStore(*store_, false);
  EXPECT_THAT(*text, HasSubstr("expired 30 min 0 s ago"));
  EXPECT_THAT(*text, HasSubstr("30 min 0 s left"));
}

TEST_F(CacheStat, AnEmptyStoreHasNoDeadlines) {
  const json stat = Only(DescribeStore(*store_, true));
  EXPECT_EQ(stat["pages"], 0);
  EXPECT_FALSE(stat.contains("soonest_deadline_s"));
}

using CacheLs = SmallStore;

TEST_F(CacheLs, TellsKeyTokensProvenanceDeadlineAndBytes) {
  const std::vector<int32_t> tokens(128, 5);
  const Digest tenant = Sha256("somebody");
  const BlockHash key = Put(Sha256("parent"), {256}, tokens, tenant);
  const auto pages = Lines(*ListPages(*store_, {0, true}));
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0]["key"], DigestText(key));
  EXPECT_EQ(pages[0]["tokens"], 128);
  EXPECT_EQ(pages[0]["provenance"], "replayed@256");
  EXPECT_NEAR(pages[0]["deadline_s"].get<double>(), 72 * 3600, 2);
  EXPECT_EQ(pages[0]["bytes"], 1000);
  EXPECT_EQ(pages[0]["tenant"], DigestText(tenant));
  const auto text = ListPages(*store_, {0, false});
  EXPECT_THAT(*text, HasSubstr(DigestText(key).substr(0, 16)));
  EXPECT_THAT(*text, HasSubstr("replayed@256"));
}

TEST_F(CacheLs, StopsAtTheLimitAndGoesByKey) {
  const std::vector<BlockHash> keys = PutChain(5);
  const auto all = Lines(*ListPages(*store_, {0, true}));
  ASSERT_EQ(all.size(), 5u);
  EXPECT_TRUE(std::ranges::is_sorted(
      all, {}, [](const json& page) { return page["key"].get<std::string>(); }));
  const auto two = Lines(*ListPages(*store_, {2, true}));
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1], all[1]);
}

using CacheVerify = SmallStore;

TEST_F(CacheVerify, FindsAFlippedByteAndQuarantinesItsPage) {
  PutChain(4);
  EXPECT_EQ(VerifyPages(*store_, {}).corrupt, 0u);
  store_.reset();
  // The payload of the first record lies behind its head.
  const std::string segment = dir() + "/segment-00000001";
  {
    std::fstream file(segment, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(RecordHeadBytes(128) + 500);
    file.put('\0');
    ASSERT_TRUE(file.good());
  }
  Reopen();
  uint64_t last_seen = 0;
  const ScrubReport report =
      VerifyPages(*store_, [&](const ScrubReport& so_far) { last_seen = so_far.pages; });
  EXPECT_EQ(report.pages, 4u);
  EXPECT_EQ(last_seen, 4u);
  EXPECT_EQ(report.corrupt, 1u);
  EXPECT_TRUE(report.is_complete);
  EXPECT_THAT(VerifyText(report, false), HasSubstr("1 corrupt: quarantined"));
  EXPECT_EQ(json::parse(VerifyText(report, true))["corrupt"], 1);
  EXPECT_EQ(Only(DescribeStore(*store_, true))["quarantined"], 1);
  EXPECT_EQ(VerifyPages(*store_, {}).pages, 3u);
}

using CacheSweep = SmallStore;

TEST_F(CacheSweep, TakesExpiredPagesOnly) {
  PutChain(3);
  EXPECT_EQ(json::parse(SweepPages(*store_, true))["swept"], 0);
  clock_.Advance(73 * kHourUs);
  const std::vector<int32_t> tokens(128, 77);
  Put(Sha256("later"), {}, tokens);
  const json swept = json::parse(SweepPages(*store_, true));
  EXPECT_EQ(swept["swept"], 3);
  EXPECT_EQ(swept["pages"], 1);
}

using CacheErase = SmallStore;

TEST_F(CacheErase, TakesOneTenantOrAll) {
  const Digest other = Sha256("other");
  PutChain(3);
  const std::vector<int32_t> tokens(128, 77);
  Put(Sha256("theirs"), {}, tokens, other);
  EXPECT_EQ(Only(ErasePages(*store_, dir(), DigestText(Sha256("nobody")), true))["erased"], 0);
  json erased = Only(ErasePages(*store_, dir(), "local", true));
  EXPECT_EQ(erased["erased"], 3);
  EXPECT_EQ(erased["pages"], 1);
  PutChain(2);
  EXPECT_EQ(Only(ErasePages(*store_, dir(), DigestText(other), true))["erased"], 1);
  EXPECT_EQ(Only(ErasePages(*store_, dir(), "all", true))["erased"], 2);
  EXPECT_EQ(*ListPages(*store_, {0, false}), "the store is empty\n");
}

// A server's tenant is found by its name: the secret lies beside the store.
TEST_F(CacheErase, FindsATenantByItsName) {
  const Result<std::string> secret = TenantSecret(dir());
  ASSERT_TRUE(secret.ok());
  const std::vector<int32_t> tokens(128, 77);
  Put(Sha256("theirs"), {}, tokens, TenantMark(*secret, "ann"));
  PutChain(2);
  EXPECT_EQ(Only(ErasePages(*store_, dir(), "name:bob", true))["erased"], 0);
  EXPECT_EQ(Only(ErasePages(*store_, dir(), "name:ann", true))["erased"], 1);
}

TEST_F(CacheErase, RefusesWhatNamesNoTenant) {
  PutChain(1);
  for (const std::string tenant : {"", "Local", "12ab", "+1", "name:"}) {
    EXPECT_EQ(ErasePages(*store_, dir(), tenant, true).status().code(), StatusCode::kInvalidArgument);
  }
  const std::string almost = DigestText(Digest{}).substr(1) + "g";
  EXPECT_EQ(ErasePages(*store_, dir(), almost, true).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Stats().pages, 1u);
}

}  // namespace
}  // namespace emberkv
