#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace emberkv {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(::testing::TempDir()) / "emberkv_mapped_file_test").string();
    std::ofstream(path_) << "0123456789";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_;
};

TEST_F(FileTest, MapsItsBytes) {
  Result<MappedFile> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->bytes().size(), 10u);
  EXPECT_EQ(file->bytes()[7], '7');
}

TEST_F(FileTest, ReadsAtAnOffsetAndReportsTruncation) {
  Result<RandomAccessFile> file = RandomAccessFile::Open(path_);
  ASSERT_TRUE(file.ok());
  std::array<uint8_t, 4> out{};
  ASSERT_TRUE(file->ReadAt(6, out).ok());
  EXPECT_EQ(out[0], '6');
  const Status past = file->ReadAt(8, out);
  EXPECT_EQ(past.code(), StatusCode::kDataLoss);
  EXPECT_NE(past.message().find("ends at byte 10"), std::string::npos) << past.message();
}

TEST_F(FileTest, ReadsTextUpToALimit) {
  EXPECT_EQ(*ReadTextFile(path_, 10), "0123456789");
  EXPECT_EQ(ReadTextFile(path_, 9).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(FileTest, EmptyFileIsEmpty) {
  std::ofstream(path_).flush();
  EXPECT_TRUE(MappedFile::Open(path_)->bytes().empty());
}

TEST(File, MissingFileAndFolderAreRefused) {
  EXPECT_EQ(MappedFile::Open("/nonexistent/x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RandomAccessFile::Open(::testing::TempDir()).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace emberkv
