#include "ledger/trace_line.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace emberkv {
namespace {

TEST(TraceLine, HasOneFormInOneOrder) {
  const TraceLine line = {.time_us = 1'788'998'400'000'001,
                          .tenant = "alpha",
                          .prompt_tokens = 300,
                          .completion_tokens = 100,
                          .block_size = 128,
                          .blocks = {1, 0xfedcba9876543210, UINT64_MAX}};
  const std::string json =
      R"({"time":1788998400.000001,"tenant":"alpha","prompt_tokens":300,"completion_tokens":100,)"
      R"("block_size":128,"blocks":["0000000000000001","fedcba9876543210","ffffffffffffffff"]})";
  EXPECT_EQ(TraceJson(line), json);
  const Result<TraceLine> read = ParseTraceLine(json);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, line);
}

TEST(TraceLine, NeedsNeitherTenantNorBlockSizeAndTakesNumbersAsIds) {
  const Result<TraceLine> read = ParseTraceLine(
      R"({"time":1.5,"prompt_tokens":256,"completion_tokens":0,"blocks":[7,"B"],"new":[]})");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, (TraceLine{.time_us = 1'500'000, .prompt_tokens = 256, .blocks = {7, 11}}));
}

TEST(TraceLine, TakesMooncakesFormAndDropsTheIncompleteBlock) {
  const Result<TraceLine> read = ParseTraceLine(
      R"({"timestamp":1500,"input_length":1100,"output_length":10,"hash_ids":[0,1,2]})");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, (TraceLine{.time_us = 1'500'000,
                              .prompt_tokens = 1100,
                              .completion_tokens = 10,
                              .block_size = 512,
                              .blocks = {0, 1}}));
}

std::string Refusal(const std::string& json) {
  const Status status = ParseTraceLine(json).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << json;
  return status.message();
}

TEST(TraceLine, RefusalsNameTheFieldWhatWasFoundAndWhatIsAllowed) {
  EXPECT_EQ(Refusal("{}"), "time is missing; allowed: a number from 0 to the year 9999");
  for (const char* time : {"-1", "\"now\"", "1e300"}) {
    EXPECT_EQ(Refusal(std::string(R"({"time":)") + time + "}").rfind("time is ", 0), 0u) << time;
  }
  const std::string two = R"({"time":0,"prompt_tokens":200,"completion_tokens":56,)";
  EXPECT_EQ(Refusal(two + R"("blocks":[1,2,3]})"),
            "blocks has 3 ids; allowed: at most 2, the complete blocks of 200 + 56 tokens");
  EXPECT_EQ(
      Refusal(two + R"("blocks":{}})"),
      "blocks is an object of 0 fields; allowed: a list of ids, each an integer below 2^64 or 1 "
      "to 16 hex digits");
  for (const char* id : {"-1", "1.5", "\"\"", "\"xyz\"", "\"0x1\"", "\"-1\"", "null",
                         "18446744073709551616", "\"00000000000000001\""}) {
    EXPECT_EQ(Refusal(two + R"("blocks":[)" + id + "]}").rfind("blocks is ", 0), 0u) << id;
  }
  EXPECT_EQ(Refusal(two + R"("block_size":0,"blocks":[]})"),
            "block_size is 0; allowed: an integer of at least 1");
  EXPECT_EQ(Refusal(R"({"hash_ids":[]})"),
            "timestamp is missing; allowed: a number from 0 to the year 9999");
}

class TraceReaderTest : public ::testing::Test {
 protected:
  ~TraceReaderTest() override { std::filesystem::remove(path_); }

  Result<TraceReader> Open(const std::string& text) {
    std::ofstream(path_) << text;
    return TraceReader::Open(path_.string());
  }

  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / "emberkv_trace_reader";
};

constexpr const char* kLine =
    R"({"time":1,"prompt_tokens":1,"completion_tokens":1,"block_size":64,"blocks":[]})";

TEST_F(TraceReaderTest, SkipsLinesThatWereCutOff) {
  Result<TraceReader> reader = Open(std::string(kLine) + "\n{\"time\":\n" + kLine + "\n{\"ti");
  ASSERT_TRUE(reader.ok());
  TraceLine line;
  EXPECT_TRUE(*reader->Next(&line));
  EXPECT_EQ(line.block_size, 64);
  EXPECT_TRUE(*reader->Next(&line));
  EXPECT_FALSE(*reader->Next(&line));
  EXPECT_EQ(reader->torn_lines(), 2u);
}

TEST_F(TraceReaderTest, RefusesASecondBlockSize) {
  Result<TraceReader> reader =
      Open(std::string(kLine) + "\n" +
           R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[]})" + "\n");
  ASSERT_TRUE(reader.ok());
  TraceLine line;
  EXPECT_TRUE(*reader->Next(&line));
  EXPECT_EQ(reader->Next(&line).status().message(),
            path_.string() + ":2: block_size is 512; allowed: 64, as in the first line");
}

}  // namespace
}  // namespace emberkv
