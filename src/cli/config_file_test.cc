#include "cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/parsed_option.h"
#include "cli/quantity.h"

namespace emberkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConfigFile : public ::testing::Test {
 protected:
  ConfigFile() : path_(std::filesystem::path(::testing::TempDir()) / "emberkv_config_file_test.json") {
    app_.add_option("--config", config_, "");
    app_.add_option("--host", host_, "");
    app_.add_option("--port", port_, "");
    AddParsedOption(app_, "--store-size", &bytes_, &ParseBytes, "");
  }
  ~ConfigFile() override { std::filesystem::remove(path_); }

  Status Apply(const std::string& text, std::vector<std::string> arguments = {}) {
    std::ofstream(path_) << text;
    app_.parse(std::move(arguments));
    return ApplyConfigFile(path_, &app_);
  }

  const std::filesystem::path path_;
  CLI::App app_;
  std::string config_;
  std::string host_ = "default";
  uint16_t port_ = 1;
  uint64_t bytes_ = 0;
};

TEST_F(ConfigFile, FillsInWhatTheCommandLineLeftOut) {
  const Status status =
      Apply(R"({"port": 8081, "store-size": "2K", "host": "::1"})", {"127.0.0.1", "--host"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(host_, "127.0.0.1");
  EXPECT_EQ(port_, 8081);
  EXPECT_EQ(bytes_, 2048u);
}

TEST_F(ConfigFile, RefusesNamesThatTheCommandDoesNotHave) {
  EXPECT_THAT(Apply(R"({"prot": 1})").message(), AllOf(HasSubstr(path_.string() + ": prot: no such option"),
                                                       HasSubstr("host, port, store-size")));
  EXPECT_THAT(Apply(R"({"config": "other.json"})").message(), HasSubstr("config: no such option"));
  EXPECT_THAT(Apply(R"({"help": 1})").message(), HasSubstr("help: no such option"));
}

TEST_F(ConfigFile, RefusesValuesThatTheOptionRefuses) {
  EXPECT_THAT(Apply(R"({"store-size": "many"})").message(), HasSubstr("store-size: "));
  EXPECT_THAT(Apply(R"({"port": 70000})").message(), HasSubstr("port: "));
  EXPECT_THAT(Apply(R"({"host": ["a"]})").message(),
              HasSubstr("host is a list of 1 values; allowed: a text or a number"));
}

TEST_F(ConfigFile, RefusesWhatIsNoObject) {
  EXPECT_FALSE(Apply("[]").ok());
  EXPECT_FALSE(Apply("{\"port\": ").ok());
  std::filesystem::remove(path_);
  EXPECT_FALSE(ApplyConfigFile(path_, &app_).ok());
}

}  // namespace
}  // namespace emberkv
