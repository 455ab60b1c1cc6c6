#include "ledger/ledger_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ledger/ledger_writer.h"

namespace emberkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kGolden = EMBERKV_TEST_DATA "/ledger/ledger.jsonl";

class LedgerFilesTest : public ::testing::Test {
 protected:
  LedgerFilesTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("emberkv_ledger_files_") + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LedgerFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const { return (folder_ / name).string(); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(File(name)) << text;
  }

  // The ids of the requests that were read.
  std::vector<std::string> Ids(const std::vector<std::string>& paths) {
    std::vector<std::string> ids;
    const Result<LedgerReading> reading = ReadLedgers(paths, [&](const LedgerLine& line) {
      ids.push_back(line.request_id);
      return Status::Ok();
    });
    status_ = reading.status();
    if (reading.ok()) reading_ = *reading;
    return ids;
  }

  std::filesystem::path folder_;
  Status status_;
  LedgerReading reading_;
};

std::string Line(const std::string& id) {
  LedgerLine line;
  line.request_id = id;
  return LedgerJson(line) + "\n";
}

TEST_F(LedgerFilesTest, ReadsTheOldestFileFirstAndSkipsWhatWasCutOff) {
  EXPECT_THAT(Ids({kGolden}), ElementsAre("r-1", "r-2", "r-3", "r-4"));
  EXPECT_EQ(reading_.files, 2u);
  EXPECT_EQ(reading_.lines, 4u);
  EXPECT_EQ(reading_.torn_lines, 1u);
}

TEST_F(LedgerFilesTest, ReadsWhatTheWriterWroteAcrossRotations) {
  const auto writer = LedgerWriter::Open(File("l.jsonl"), {.max_bytes = 1000, .keep_files = 20});
  ASSERT_TRUE(writer.ok());
  std::vector<std::string> expected;
  for (int i = 0; i < 12; ++i) {
    LedgerLine line;
    line.request_id = expected.emplace_back(std::to_string(i));
    (*writer)->Append(LedgerJson(line));
  }
  ASSERT_GT((*writer)->stats().rotations, 2u);
  EXPECT_EQ(Ids({File("l.jsonl")}), expected);
}

TEST_F(LedgerFilesTest, ReadsEachFileOnceHoweverOftenItIsNamed) {
  Write("l.jsonl", Line("b"));
  Write("l.1.jsonl", Line("a"));
  EXPECT_THAT(Ids({File("l.1.jsonl"), File("l.jsonl"), File("l.jsonl")}), ElementsAre("a", "b"));
  std::filesystem::create_symlink(File("l.jsonl"), File("other.jsonl"));
  EXPECT_THAT(Ids({File("l.jsonl"), File("other.jsonl")}), ElementsAre("a", "b"));
}

TEST_F(LedgerFilesTest, ReadsOnWhenACrashLeftTheRotatedFilesOnly) {
  Write("l.1.jsonl", Line("a"));
  EXPECT_THAT(Ids({File("l.jsonl")}), ElementsAre("a"));
}

TEST_F(LedgerFilesTest, KnowsACutOffLineAtTheEndAndInTheMiddle) {
  Write("l.jsonl",
        Line("a") + Line("lost").substr(0, 100) + "\n" + Line("b") + Line("torn").substr(0, 20));
  EXPECT_THAT(Ids({File("l.jsonl")}), ElementsAre("a", "b"));
  EXPECT_EQ(reading_.torn_lines, 2u);
  Write("l.jsonl", Line("first").substr(0, 20));
  EXPECT_THAT(Ids({File("l.jsonl")}), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.ToString();
}

TEST_F(LedgerFilesTest, NamesFileAndLineOfWhatIsWrong) {
  Write("l.jsonl", Line("a") + "\n{\"time\":7}\n");
  EXPECT_THAT(Ids({File("l.jsonl")}), ElementsAre("a"));
  EXPECT_EQ(status_.message(), File("l.jsonl") + ":3: time is 7; allowed: a text");
  Write("l.jsonl", "no\nledger\n");
  EXPECT_THAT(Ids({File("l.jsonl")}), IsEmpty());
  EXPECT_THAT(status_.message(), HasSubstr("is no ledger"));
  EXPECT_THAT(Ids({File("missing.jsonl")}), IsEmpty());
  EXPECT_EQ(status_.code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace emberkv
