#include "ledger/ledger_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

class LedgerWriterTest : public ::testing::Test {
 protected:
  LedgerWriterTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("emberkv_ledger_writer_") + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LedgerWriterTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const { return (folder_ / name).string(); }

  std::unique_ptr<LedgerWriter> Open(const LedgerWriterOptions& options = {}) {
    auto writer = LedgerWriter::Open(File("ledger.jsonl"), options);
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    return writer.ok() ? std::move(writer).value() : nullptr;
  }

  std::string Read(const std::string& name) const {
    std::ifstream in(File(name), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(LedgerWriterTest, AppendsToWhatIsThere) {
  Open()->Append("{\"a\":1}");
  const auto writer = Open();
  writer->Append("{\"a\":2}");
  EXPECT_EQ(Read("ledger.jsonl"), "{\"a\":1}\n{\"a\":2}\n");
  const LedgerWriterStats stats = writer->stats();
  EXPECT_EQ(stats.lines_written, 1u);
  EXPECT_EQ(stats.bytes_written, 8u);
  EXPECT_EQ(stats.lines_lost, 0u);
  EXPECT_EQ(stats.last_error, "");
}

TEST_F(LedgerWriterTest, EndsALineThatACrashCutOff) {
  std::ofstream(File("ledger.jsonl")) << "{\"a\":1}\n{\"a\":";
  Open()->Append("{\"a\":2}");
  EXPECT_EQ(Read("ledger.jsonl"), "{\"a\":1}\n{\"a\":\n{\"a\":2}\n");
}

TEST_F(LedgerWriterTest, RotatesBySizeAndKeepsSoMany) {
  // Two lines of five bytes fit in a file.
  const auto writer = Open({.max_bytes = 10, .keep_files = 2});
  for (char c = 'a'; c <= 'i'; ++c) writer->Append(std::string("\"") + c + c + "\"");
  EXPECT_EQ(Read("ledger.jsonl"), "\"ii\"\n");
  EXPECT_EQ(Read("ledger.1.jsonl"), "\"gg\"\n\"hh\"\n");
  EXPECT_EQ(Read("ledger.2.jsonl"), "\"ee\"\n\"ff\"\n");
  EXPECT_FALSE(std::filesystem::exists(File("ledger.3.jsonl")));
  EXPECT_EQ(writer->stats().rotations, 4u);
  EXPECT_EQ(writer->stats().lines_written, 9u);
}

TEST_F(LedgerWriterTest, ALineLargerThanAFileHasOneOfItsOwn) {
  const auto writer = Open({.max_bytes = 4, .keep_files = 3});
  writer->Append("\"long line\"");
  writer->Append("1");
  EXPECT_EQ(Read("ledger.1.jsonl"), "\"long line\"\n");
  EXPECT_EQ(Read("ledger.jsonl"), "1\n");
}

TEST_F(LedgerWriterTest, GoesOnInTheOldFileWhenItCannotRotate) {
  const auto writer = Open({.max_bytes = 4, .keep_files = 1});
  // A folder that is not empty cannot be replaced by a file.
  std::filesystem::create_directories(File("ledger.1.jsonl/in_the_way"));
  writer->Append("111");
  writer->Append("222");
  EXPECT_EQ(Read("ledger.jsonl"), "111\n222\n");
  LedgerWriterStats stats = writer->stats();
  EXPECT_EQ(stats.lines_lost, 0u);
  EXPECT_EQ(stats.rotations, 0u);
  EXPECT_THAT(stats.last_error, HasSubstr("cannot rotate"));
  std::filesystem::remove_all(File("ledger.1.jsonl"));
  writer->Append("333");
  EXPECT_EQ(Read("ledger.jsonl"), "333\n");
  EXPECT_EQ(Read("ledger.1.jsonl"), "111\n222\n");
}

TEST_F(LedgerWriterTest, AFullDiskLosesLinesAndCountsThem) {
  const auto writer = LedgerWriter::Open("/dev/full");
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  (*writer)->Append("1");
  (*writer)->Append("2");
  EXPECT_EQ((*writer)->stats().lines_lost, 2u);
  EXPECT_EQ((*writer)->stats().lines_written, 0u);
  EXPECT_THAT((*writer)->stats().last_error, HasSubstr("No space left"));
}

// A limit on the size of files is a disk that takes the beginning of a line only.
TEST_F(LedgerWriterTest, ALineThatFitsInPartIsLostAndTheNextIsWhole) {
  const auto writer = Open();
  writer->Append("{\"a\":1}");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 12;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  writer->Append("{\"a\":2}");
  writer->Append("{\"a\":3}");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(writer->stats().lines_lost, 2u);
  writer->Append("{\"a\":4}");
  EXPECT_EQ(Read("ledger.jsonl"), "{\"a\":1}\n{\"a\"\n{\"a\":4}\n");
  EXPECT_EQ(writer->stats().lines_written, 2u);
}

TEST_F(LedgerWriterTest, RefusesAFileThatCannotBe) {
  const auto writer = LedgerWriter::Open(File("missing/ledger.jsonl"));
  EXPECT_EQ(writer.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(writer.status().message(), HasSubstr("No such file"));
  EXPECT_EQ(LedgerWriter::Open(File("l"), {.keep_files = 0}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(LedgerWriterTest, LinesOfManyThreadsNeitherMixNorGetLost) {
  constexpr int kThreads = 4;
  constexpr int kLines = 500;
  const auto writer = Open({.max_bytes = 4096, .keep_files = 100});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kLines; ++i) writer->Append(std::to_string(t * kLines + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int> seen;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_LE(entry.file_size(), 4096u);
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      EXPECT_TRUE(seen.insert(std::stoi(line)).second) << line;
    }
  }
  EXPECT_EQ(seen.size(), size_t{kThreads} * kLines);
  EXPECT_EQ(*seen.rbegin(), kThreads * kLines - 1);
  EXPECT_EQ(writer->stats().lines_written, uint64_t{kThreads} * kLines);
}

TEST(RotatedPath, NumbersComeBeforeTheExtension) {
  EXPECT_EQ(RotatedPath("a.b/ledger.jsonl", 1), "a.b/ledger.1.jsonl");
  EXPECT_EQ(RotatedPath("a.b/ledger", 12), "a.b/ledger.12");
}

}  // namespace
}  // namespace emberkv
