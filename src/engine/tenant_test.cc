#include "engine/tenant.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace emberkv {
namespace {

namespace fs = std::filesystem;

class TenantSecretTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) / "emberkv_tenant_test";
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path directory_;
};

TEST_F(TenantSecretTest, OutlivesTheProcessAndIsTheOwnersOnly) {
  const Result<std::string> first = TenantSecret(directory_.string());
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->size(), 32u);
  EXPECT_EQ(*TenantSecret(directory_.string()), *first);
  struct stat info;
  ASSERT_EQ(stat((directory_ / "tenant_secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(TenantSecretTest, IsAnotherForEveryStoreAndForNone) {
  fs::create_directories(directory_ / "other");
  const std::set<std::string> secrets = {*TenantSecret(directory_.string()),
                                         *TenantSecret((directory_ / "other").string()), *TenantSecret(""),
                                         *TenantSecret("")};
  EXPECT_EQ(secrets.size(), 4u);
}

TEST_F(TenantSecretTest, ADamagedFileIsRefusedWithBothLengths) {
  std::ofstream(directory_ / "tenant_secret") << "short";
  const Result<std::string> secret = TenantSecret(directory_.string());
  ASSERT_FALSE(secret.ok());
  EXPECT_NE(secret.status().ToString().find("5 bytes; allowed: 32"), std::string::npos)
      << secret.status().ToString();
}

TEST(Tenant, NamesAndSaltsGiveDifferentRootsAndOnlyNamesDifferentMarks) {
  const IdentityFields identity;
  const std::string secret(32, 's'), other(32, 't');
  const std::set<Digest> roots = {
      TenantKeyRoot(identity, secret, {}),          TenantKeyRoot(identity, secret, {"a", ""}),
      TenantKeyRoot(identity, secret, {"b", ""}),   TenantKeyRoot(identity, secret, {"a", "x"}),
      TenantKeyRoot(identity, secret, {"", "x"}),   TenantKeyRoot(identity, secret, {"ax", ""}),
      TenantKeyRoot(identity, other, {"a", ""}),
  };
  EXPECT_EQ(roots.size(), 7u);
  EXPECT_EQ(TenantKeyRoot(identity, secret, {}), KeyRoot(identity));
  EXPECT_EQ(TenantMark(secret, ""), Digest{});
  EXPECT_NE(TenantMark(secret, "a"), TenantMark(secret, "b"));
}

}  // namespace
}  // namespace emberkv
