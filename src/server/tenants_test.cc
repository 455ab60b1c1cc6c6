#include "server/tenants.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace emberkv {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of the key "abc".
constexpr const char* kAbcHash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string TableOf(const std::string& name, const std::string& hash, const std::string& more = "") {
  return fmt::format(R"({{"tenants": [{{"name": "{}", "keys": ["{}"]{}}}]}})", name, hash, more);
}

std::string Complaint(const std::string& json) {
  const auto table = TenantTable::Parse(json);
  return table.ok() ? "" : table.status().message();
}

class TenantsFile : public ::testing::Test {
 protected:
  TenantsFile() : path_(std::filesystem::path(::testing::TempDir()) / "emberkv_tenants_test.json") {}
  ~TenantsFile() override { std::filesystem::remove(path_); }

  void Write(const std::string& text) const { std::ofstream(path_) << text; }

  const std::filesystem::path path_;
};

TEST(TenantTable, FindsATenantByTheHashOfItsKey) {
  EXPECT_EQ(ApiKeyHash("abc"), kAbcHash);
  const auto table = TenantTable::Parse(TableOf("acme", kAbcHash));
  ASSERT_TRUE(table.ok()) << table.status().message();
  const auto tenant = table->Find("abc");
  ASSERT_TRUE(tenant);
  EXPECT_EQ(tenant->name, "acme");
  EXPECT_FALSE(tenant->is_operator);
  EXPECT_FALSE(table->Find("abd"));
  EXPECT_FALSE(table->Find(""));
  EXPECT_FALSE(table->Find(kAbcHash)) << "the hash is no key";
}

TEST(TenantTable, ReadsLimitsAndOperators) {
  const auto table = TenantTable::Parse(TableOf(
      "acme", kAbcHash, R"(, "operator": true, "limits": {"max_concurrent": 3, "tokens_per_minute": 500})"));
  ASSERT_TRUE(table.ok()) << table.status().message();
  const auto tenant = table->Find("abc");
  EXPECT_TRUE(tenant->is_operator);
  EXPECT_EQ(tenant->limits.max_concurrent, 3);
  EXPECT_EQ(tenant->limits.tokens_per_minute, 500);
}

TEST(TenantTable, RefusesWhatItWouldHaveToGuess) {
  EXPECT_THAT(Complaint("{}"), HasSubstr("tenants"));
  EXPECT_THAT(Complaint(R"({"tenants": []})"), HasSubstr("one at least"));
  EXPECT_THAT(Complaint(R"({"tenants": [7]})"), HasSubstr("tenants[0] is 7"));
  EXPECT_THAT(Complaint(R"({"tenants": [], "tenant": 1})"), HasSubstr("tenant: no such field"));
  EXPECT_THAT(Complaint(TableOf("", kAbcHash)), HasSubstr("tenants[0].name"));
  EXPECT_THAT(Complaint(TableOf("local", kAbcHash)), HasSubstr("and not \"local\""));
  EXPECT_THAT(Complaint(TableOf("a b", kAbcHash)), HasSubstr("tenants[0].name"));
  EXPECT_THAT(Complaint(TableOf("acme", kAbcHash, R"(, "operator": 1)")), HasSubstr("true or false"));
  EXPECT_THAT(Complaint(TableOf("acme", kAbcHash, R"(, "limits": {"max_concurent": 1})")),
              HasSubstr("tenants[0].limits.max_concurent: no such field"));
  EXPECT_THAT(Complaint(TableOf("acme", kAbcHash, R"(, "limits": {"max_concurrent": -1})")),
              HasSubstr("max_concurrent"));
}

TEST(TenantTable, ReadsWhatATenantMayKeep) {
  const auto limits_of = [](const std::string& limits) {
    const auto table = TenantTable::Parse(TableOf("acme", kAbcHash, R"(, "limits": )" + limits));
    EXPECT_TRUE(table.ok()) << table.status().message();
    return table.ok() ? table->Find("abc")->limits : TenantLimits();
  };
  EXPECT_EQ(limits_of("{}").max_stored_bytes, 0);
  EXPECT_EQ(limits_of("{}").retention.count(), 0);
  EXPECT_EQ(limits_of(R"({"max_stored_bytes": 4398046511104})").max_stored_bytes, int64_t{4} << 40);
  EXPECT_EQ(limits_of(R"({"retention": "24h"})").retention, std::chrono::hours(24));
  EXPECT_EQ(limits_of(R"({"retention": "90s"})").retention, std::chrono::seconds(90));
  EXPECT_EQ(limits_of(R"({"retention": "1.5h"})").retention, std::chrono::minutes(90));
  EXPECT_EQ(limits_of(R"({"retention": "366d"})").retention, std::chrono::hours(366 * 24));
}

TEST(TenantTable, RefusesARetentionThatIsNone) {
  for (const char* text : {R"("24")", R"("h")", R"("")", R"("0h")", R"("-1h")", R"("999ms")", R"("24h ")", R"("1w")",
                           R"("367d")", R"("99999999999999999999d")", R"("9223372036854775807d")", "24", "true"}) {
    EXPECT_THAT(Complaint(TableOf("acme", kAbcHash, fmt::format(R"(, "limits": {{"retention": {}}})", text))),
                HasSubstr("limits.retention is ")) << text;
  }
  EXPECT_THAT(Complaint(TableOf("acme", kAbcHash, R"(, "limits": {"max_stored_bytes": "1G"})")),
              HasSubstr("limits.max_stored_bytes"));
}

TEST(TenantTable, DoesNotRepeatAKeyThatStandsInPlaceOfItsHash) {
  const std::string complaint = Complaint(TableOf("acme", "ember-secret"));
  EXPECT_THAT(complaint, HasSubstr("not a hash"));
  EXPECT_THAT(complaint, Not(HasSubstr("secret")));
}

TEST(TenantTable, RefusesANameOrAKeyThatIsThereTwice) {
  EXPECT_THAT(Complaint(fmt::format(
                  R"({{"tenants": [{{"name": "a", "keys": ["{0}"]}}, {{"name": "b", "keys": ["{0}"]}}]}})",
                  kAbcHash)),
              HasSubstr("a key of tenant 'b' is there twice"));
  EXPECT_THAT(
      Complaint(fmt::format(
          R"({{"tenants": [{{"name": "a", "keys": ["{}"]}}, {{"name": "a", "keys": []}}]}})", kAbcHash)),
      HasSubstr("tenant 'a' is there twice"));
}

TEST(ApiKey, IsFreshEachTime) {
  const auto first = NewApiKey();
  const auto second = NewApiKey();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(first->size(), 6 + 64);
}

TEST(Tenants, WithoutKeysEverybodyIsTheLocalUser) {
  const Tenants tenants;
  const auto tenant = tenants.Authenticate("");
  ASSERT_TRUE(tenant.ok());
  EXPECT_EQ((*tenant)->name, "");
  EXPECT_TRUE((*tenant)->is_operator);
}

TEST_F(TenantsFile, AuthenticatesBearersOnly) {
  Write(TableOf("acme", kAbcHash));
  const auto tenants = Tenants::Load(path_);
  ASSERT_TRUE(tenants.ok()) << tenants.status().message();
  EXPECT_EQ((*(*tenants)->Authenticate("Bearer abc"))->name, "acme");
  EXPECT_EQ((*(*tenants)->Authenticate("bearer abc"))->name, "acme");
  for (const char* header : {"", "Bearer", "Bearer ", "Bearer abcd", "Basic abc", "abc", "Bearer  abc"}) {
    EXPECT_FALSE((*tenants)->Authenticate(header).ok()) << header;
  }
}

TEST_F(TenantsFile, ReloadReplacesTheTable) {
  Write(TableOf("acme", kAbcHash));
  const auto tenants = Tenants::Load(path_);
  ASSERT_TRUE(tenants.ok());
  const auto before = *(*tenants)->Authenticate("Bearer abc");
  Write(TableOf("zeta", ApiKeyHash("new")));
  ASSERT_TRUE((*tenants)->Reload().ok());
  EXPECT_FALSE((*tenants)->Authenticate("Bearer abc").ok());
  EXPECT_EQ((*(*tenants)->Authenticate("Bearer new"))->name, "zeta");
  EXPECT_EQ(before->name, "acme") << "a request that runs keeps its tenant";
}

TEST_F(TenantsFile, AFileThatIsWrongKeepsTheOldTable) {
  Write(TableOf("acme", kAbcHash));
  const auto tenants = Tenants::Load(path_);
  ASSERT_TRUE(tenants.ok());
  Write("{\"tenants\": [");
  EXPECT_THAT((*tenants)->Reload().message(), HasSubstr(path_.string()));
  std::filesystem::remove(path_);
  EXPECT_FALSE((*tenants)->Reload().ok());
  EXPECT_TRUE((*tenants)->Authenticate("Bearer abc").ok());
}

}  // namespace
}  // namespace emberkv
