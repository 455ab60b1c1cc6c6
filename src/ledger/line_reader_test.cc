#include "ledger/line_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace emberkv {
namespace {

class LineReaderTest : public ::testing::Test {
 protected:
  ~LineReaderTest() override { std::filesystem::remove(path_); }

  std::vector<std::string> Lines(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    Result<LineReader> reader = LineReader::Open(path_.string());
    std::vector<std::string> lines;
    if (!reader.ok()) return {reader.status().ToString()};
    std::string_view line;
    for (;;) {
      const Result<bool> has_line = reader->Next(&line);
      if (!has_line.ok()) lines.push_back(has_line.status().message());
      if (!has_line.ok() || !*has_line) break;
      lines.push_back(std::to_string(reader->line_number()) + " " + std::string(line));
    }
    bytes_read_ = reader->bytes_read();
    return lines;
  }

  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / "emberkv_line_reader";
  uint64_t bytes_read_ = 0;
};

using Texts = std::vector<std::string>;

TEST_F(LineReaderTest, SkipsEmptyLinesAndCountsThem) {
  EXPECT_EQ(Lines(""), Texts{});
  EXPECT_EQ(Lines("\n\n"), Texts{});
  EXPECT_EQ(Lines("a\n"), Texts{"1 a"});
  EXPECT_EQ(Lines("a\n\n\nb\nc"), (Texts{"1 a", "4 b", "5 c"}));
}

TEST_F(LineReaderTest, JoinsWhatItReadInPieces) {
  std::string text;
  Texts expected;
  for (int i = 1; i <= 20; ++i) {
    const std::string line(static_cast<size_t>(i) * 9973, static_cast<char>('a' + i));
    text += line + "\n";
    expected.push_back(std::to_string(i) + " " + line);
  }
  EXPECT_TRUE(Lines(text) == expected);
  EXPECT_EQ(bytes_read_, text.size());
}

TEST_F(LineReaderTest, RefusesALineThatNeverEnds) {
  const std::string longest(LineReader::kMaxLineBytes, 'x');
  EXPECT_EQ(Lines("a\n" + longest + "\nb\n").size(), 3u);
  EXPECT_EQ(Lines("a\n" + longest + "x\nb\n"),
            (Texts{"1 a", path_.string() + ":2: a line of more than 16777216 bytes"}));
}

TEST_F(LineReaderTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(LineReader::Open(path_.string()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(LineReader::Open(::testing::TempDir()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace emberkv
